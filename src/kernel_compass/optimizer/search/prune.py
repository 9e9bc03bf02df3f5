"""What a static compilation rules out before anything is measured, and what it tells the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

FAR_LOWER = 0.25
"""A kernel of less than this share of its kind's best occupancy, and few warps, hides nothing."""
FEW_WARPS = 4
"""Warps of a multiprocessor under which low occupancy counts at all: a few wide ones can do."""
_BY_THE_COMPILER = (
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "PTXASError",
    "OutOfResources",
    "RuntimeError: PassManager::run failed",
)
"""How failures of Triton's compiler begin."""
MANY_SPILLS = 8
"""Loads and stores of local memory in loops; fewer are as often a stack variable's."""


_OF_ONE_LAUNCH = ("registers", "threads", "shared_bytes")


class Dropped(StrEnum):
    """Why a configuration is not measured."""

    DOES_NOT_COMPILE = "does_not_compile"
    SHARED_MEMORY = "shared_memory"
    REGISTERS = "registers"
    THREADS = "threads"
    SPILLS = "spills"
    OCCUPANCY = "occupancy"

    @property
    def is_firm(self) -> bool:
        """Whether the GPU refuses the launch, whatever it would be good for."""
        return self in (Dropped.SHARED_MEMORY, Dropped.REGISTERS, Dropped.THREADS)


@dataclass(frozen=True)
class Limits:
    """Of a multiprocessor, as the architecture has them."""

    registers: int = 65536
    threads: int = 2048
    programs: int = 32
    shared_bytes: int = 228 * 1024
    shared_bytes_program: int = 227 * 1024
    """What one program may have."""
    reserved_bytes: int = 1024
    """What each program takes beside its own."""


LIMITS: Mapping[tuple[int, int], Limits] = {
    (8, 0): Limits(shared_bytes=164 << 10, shared_bytes_program=163 << 10),
    (8, 6): Limits(
        threads=1536, programs=16, shared_bytes=100 << 10, shared_bytes_program=99 << 10
    ),
    (8, 9): Limits(
        threads=1536, programs=24, shared_bytes=100 << 10, shared_bytes_program=99 << 10
    ),
    (9, 0): Limits(),
    (10, 0): Limits(),
    (10, 3): Limits(),
    (12, 0): Limits(
        threads=1536, programs=24, shared_bytes=100 << 10, shared_bytes_program=99 << 10
    ),
}
"""CUDA C++ Programming Guide, table of technical specifications per compute capability."""


@dataclass(frozen=True)
class Compiled:
    """What became of a configuration in the compiler."""

    figures: Mapping[str, float] | None
    """`registers`, `threads`, `shared_bytes`, `loop_spills`, ...; `None` = it failed."""
    failure: str | None = None
    lost: bool = False
    """Whether its process crashed, hung or had no time left: it may go better next time."""

    @property
    def is_known(self) -> bool:
        """Whether the compiler answered; what fails on the way to it says nothing of a launch."""
        if self.figures is not None:
            return True
        return not self.lost and is_of_the_compiler(self.failure or "")


def is_of_the_compiler(failure: str) -> bool:
    """Whether a failure, `Kind: words`, is what Triton's compiler says of a kernel."""
    return failure.startswith(_BY_THE_COMPILER)


@dataclass(frozen=True)
class Verdict:
    """Whether a configuration is measured."""

    dropped: Dropped | None
    detail: str
    """Empty where it is kept."""


def prune(
    compiled: Sequence[Compiled], kinds: Sequence[str], limits: Limits
) -> tuple[Verdict, ...]:
    """A verdict on each configuration; of each kind at least one that can launch is kept.

    Args:
        compiled: by index.
        kinds: what each is compared with: configurations of one kind, e.g. the same kernel.
        limits: of the GPU.
    """
    firm = [_cannot_launch(c, limits) for c in compiled]
    best: dict[str, float] = {}
    for c, kind, verdict in zip(compiled, kinds, firm, strict=True):
        if verdict is None and c.figures is not None:
            best[kind] = max(best.get(kind, 0.0), warps_resident(c.figures, limits))
    found = [
        verdict or _hopeless(c.figures or {}, best[kind], limits)
        for c, kind, verdict in zip(compiled, kinds, firm, strict=True)
    ]
    for kind in best:
        mine = [i for i, k in enumerate(kinds) if k == kind]
        if all(found[i].dropped for i in mine):
            launching = [i for i in mine if firm[i] is None]
            least = min(launching, key=lambda i: (compiled[i].figures or {}).get("loop_spills", 0))
            found[least] = Verdict(None, "")
    return tuple(found)


def of_kernels(kernels: Sequence[Mapping[str, float]], limits: Limits) -> dict[str, float]:
    """Figures of a call that launches several kernels, from those of each.

    `registers`, `threads` and `shared_bytes` are of one of them, the one that cannot launch or of
    which the least fits: of two kernels, one with many registers and one with many threads, no
    launch needs both. Of all else it is the largest.

    Args:
        kernels: at least one.
        limits: of the GPU.
    """
    worst = min(
        kernels,
        key=lambda one: (
            _cannot_launch(Compiled(one), limits) is None,
            warps_resident(one, limits),
        ),
    )
    names = dict.fromkeys(name for one in kernels for name in one)
    largest = {name: max(one.get(name, 0.0) for one in kernels) for name in names}
    return {**largest, **{name: worst[name] for name in _OF_ONE_LAUNCH}}


def features(compiled: Compiled, limits: Limits) -> dict[str, float] | None:
    """What the model may learn from; `None` where there is nothing."""
    if compiled.figures is None:
        return None
    figures = dict(compiled.figures)
    resident = warps_resident(figures, limits)
    figures["warps_resident"] = resident
    figures["occupancy_pct"] = 100.0 * resident * 32 / limits.threads
    figures["loads_in_flight_bytes"] = figures.get("loads_128", 0.0) * 512 * resident
    return figures


def warps_resident(figures: Mapping[str, float], limits: Limits) -> float:
    """Theoretical occupancy in warps of a multiprocessor; 0 = not one program fits."""
    threads = figures["threads"]
    warps = ceil(threads / 32)
    each = 256 * ceil(figures["registers"] * 32 / 256) * warps  # allocated by warp, in units of 256
    shared = figures["shared_bytes"] + limits.reserved_bytes
    programs = min(
        limits.registers // each if each else limits.programs,
        limits.shared_bytes // shared,
        limits.threads // threads,
        limits.programs,
    )
    return float(programs * warps)


def _cannot_launch(compiled: Compiled, limits: Limits) -> Verdict | None:
    figures = compiled.figures
    if figures is None:
        return Verdict(Dropped.DOES_NOT_COMPILE, compiled.failure or "it does not compile")
    shared, threads = figures["shared_bytes"], figures["threads"]
    if shared > limits.shared_bytes_program:
        most = limits.shared_bytes_program
        words = f"{shared:,.0f} bytes of shared memory, and {most:,} are the most"
        return Verdict(Dropped.SHARED_MEMORY, words)
    if threads > 1024:
        return Verdict(Dropped.THREADS, f"{threads:.0f} threads, and 1024 are the most")
    registers = figures["registers"] * threads
    if registers > limits.registers:
        words = f"{registers:,.0f} registers, and {limits.registers:,} are the most"
        return Verdict(Dropped.REGISTERS, words)
    return None


def _hopeless(figures: Mapping[str, float], best_warps: float, limits: Limits) -> Verdict:
    spills = figures.get("loop_spills", 0.0)
    if spills > MANY_SPILLS:
        return Verdict(Dropped.SPILLS, f"{spills:.0f} accesses to spilled registers in loops")
    warps = warps_resident(figures, limits)
    if warps < FAR_LOWER * best_warps and warps < FEW_WARPS:
        words = f"{warps:.0f} warps a multiprocessor, and {best_warps:.0f} of its kind fit"
        return Verdict(Dropped.OCCUPANCY, words)
    return Verdict(None, "")
