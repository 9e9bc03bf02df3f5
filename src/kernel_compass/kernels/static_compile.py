"""Compile a launch for an architecture without a GPU, and read what came out. Needs triton.

`compile_for` runs an ordinary launcher with Triton's driver and its launches replaced: arguments go
through Triton's own specialization (alignment, ones, constants) and compiler, and then nothing is
launched. So what is compiled is what the JIT would compile for these arguments, and no list of
arguments is kept twice. Tensors may be torch's `meta` ones, which have sizes and no memory.

In a process whose kernels Triton's interpreter runs (`TRITON_INTERPRET=1`) nothing is compiled.
`standing_in` puts the same driver in place for code that asks it for its GPU while it is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernel_compass.errors import INSTALL_TORCH, MissingDependency, UsageError
from kernel_compass.kernels import cubin
from kernel_compass.kernels.launching import compiling_only

WARP = 32
_MATRIX_UNITS = ("tcgen05.mma", "wgmma.mma_async", "mma.sync")
"""Blackwell's unit, Hopper's warpgroup unit, a warp's own: the widest first."""
_MATRIX_INSTRUCTION = re.compile(r"\b(?:tcgen05\.mma|wgmma\.mma_async|mma\.sync)\.[\w.:]+")


@dataclass(frozen=True)
class StaticFigures:
    """One compiled kernel."""

    kernel: str
    capability: tuple[int, int]
    warps: int
    """Of a program."""
    registers: int
    """Of a thread."""
    frame_bytes: int
    """Stack of a thread, in local memory. Eight bytes are harmless; see `spills`."""
    shared_bytes: int
    """Of a program. Nothing checks it against the architecture's limit before a launch does."""
    matrix_instruction: str | None
    """PTX of the widest matrix unit in the code, e.g. `mma.sync.aligned.m16n8k16.row.col.f32...`,
    of its instructions the most frequent; `None` = no product in it."""
    instructions: Mapping[str, int] | None
    """SASS in the code by class (`HGMMA`, `LDG.128`, `STL.32`); `None` = not asked for."""
    loop_instructions: Mapping[str, int] | None = None
    """Those of them that stand in a loop."""

    @property
    def spills(self) -> int | None:
        """Loads and stores of local memory in the code; `None` without a listing."""
        if self.instructions is None:
            return None
        return sum(n for name, n in self.instructions.items() if name.startswith(("LDL", "STL")))


def triton_version() -> str:
    """The version whose compiler `compile_for` uses.

    Raises:
        MissingDependency: triton is not installed.
    """
    return str(_triton("triton").__version__)


def compile_for(
    launch: Callable[[], object], capability: tuple[int, int], *, listing: bool = True
) -> tuple[StaticFigures, ...]:
    """Compile all kernels that a call launches, in order, each distinct one once.

    Not for several threads at once: Triton's driver is replaced for the whole process meanwhile.

    Args:
        launch: calls kernels in the ordinary way, `kernel[grid](...)` or `kernel.warmup(...)`;
            it must not look at results, for there are none.
        capability: of the architecture, e.g. `(9, 0)`.
        listing: also disassemble, which takes about as long again as compiling.

    Raises:
        UsageError: nothing was launched, or kernels are run by the interpreter here.
        Exception: Triton's own, where a kernel cannot be compiled for this architecture.
    """
    if _triton("triton").knobs.runtime.interpret:
        raise UsageError(
            "Kernels are interpreted in this process, not compiled.",
            "Unset TRITON_INTERPRET and start anew.",
        )
    with standing_in(capability), _compiling() as compiled:
        launch()
    if not compiled:
        raise UsageError("No kernel was launched.", "Give a call that has work for one.")
    return tuple(_figures(kernel, capability, listing) for kernel in compiled)


@contextmanager
def standing_in(capability: tuple[int, int], multiprocessors: int = 132) -> Iterator[None]:
    """Triton's driver replaced by one that knows a GPU of this architecture, and launches nothing.

    Within another of its kind that one stays: what it says of the GPU holds.

    Args:
        capability: of the architecture.
        multiprocessors: what is said to who asks for their number.
    """
    driver = _triton("triton.runtime.driver").driver
    before = driver._active
    if isinstance(before, _StandIn) and before.capability == capability:
        yield
        return
    driver.set_active(_StandIn(capability, multiprocessors))
    try:
        yield
    finally:
        driver._active = before  # maybe none yet: `active` would look for a GPU


@contextmanager
def _compiling() -> Iterator[list[Any]]:
    """Kernels that are compiled instead of launched meanwhile."""
    jit = _triton("triton.runtime.jit")
    compiled: list[Any] = []
    run = jit.JITFunction.run

    def compile_only(self: Any, *args: Any, **options: Any) -> Any:
        kernel = run(self, *args, **{**options, "warmup": True})
        if not any(kernel is other for other in compiled):
            compiled.append(kernel)
        return kernel

    jit.JITFunction.run = compile_only
    try:
        with compiling_only():
            yield compiled
    finally:
        jit.JITFunction.run = run


class _StandIn:
    """As much of a driver as a compilation asks for, and as kernels' files do."""

    def __init__(self, capability: tuple[int, int], multiprocessors: int) -> None:
        self.capability = capability
        self.utils = SimpleNamespace(
            get_device_properties=lambda _device: {
                "multiprocessor_count": multiprocessors,
                "warpSize": WARP,
            }
        )

    def get_current_target(self) -> Any:
        major, minor = self.capability
        return _triton("triton.backends.compiler").GPUTarget("cuda", 10 * major + minor, WARP)

    def get_current_device(self) -> str:
        """Triton keeps its kernels by device; this is none of the real ones, which are numbers."""
        return "static compilation for {}.{}".format(*self.capability)

    def get_active_torch_device(self) -> Any:
        return import_module("torch").device("cuda", 0)

    def get_current_stream(self, _device: object) -> int:
        return 0


def _figures(kernel: Any, capability: tuple[int, int], listing: bool) -> StaticFigures:
    code = kernel.asm["cubin"]
    name = kernel.metadata.name
    own = cubin.resources(code)[name]
    sass = cubin.disassemble(code, _nvdisasm()) if listing else None
    return StaticFigures(
        kernel=name,
        capability=capability,
        warps=kernel.metadata.num_warps,
        registers=own.registers,
        frame_bytes=own.frame_bytes,
        shared_bytes=kernel.metadata.shared,
        matrix_instruction=_matrix_instruction(kernel.asm["ptx"]),
        instructions=None if sass is None else cubin.instructions(sass),
        loop_instructions=None if sass is None else cubin.loop_instructions(sass),
    )


def _matrix_instruction(ptx: str) -> str | None:
    counts: Counter[str] = Counter(_MATRIX_INSTRUCTION.findall(ptx))
    for unit in _MATRIX_UNITS:
        found = [name for name, _ in counts.most_common() if name.startswith(unit)]
        if found:
            return found[0]
    return None


def _nvdisasm() -> Path:
    """The copy that triton brings."""
    found = Path(_triton("triton").__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    if not found.exists():
        raise MissingDependency(f"Triton has no {found.name}.", "Install triton's own wheel.")
    return found


def _triton(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise MissingDependency("Triton is not installed.", INSTALL_TORCH) from error
