"""The loop over a script's kernels: what takes most is tried first, what does not help goes back.

What touches the machine, the user or a file comes in as `ScriptDoors`: with recorded profiles the
same loop runs without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernel_compass.analysis.op_names import product_of, target_of
from kernel_compass.errors import KernelCompassError, UsageError, shortened
from kernel_compass.optimizer.selecting import select
from kernel_compass.records.profile import Regime
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.records.selection import Measured, Selected
from kernel_compass.records.workload import Workload

MOST_SHOWN = 8
_LONGEST_NAME = 60


@dataclass(frozen=True)
class ScriptOptions:
    """When a change is kept."""

    iterations: int = 3
    """Kernels that are tried at most."""
    least_speedup: float = 1.05
    """Of the script's GPU time: before over after."""

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise UsageError(f"{self.iterations} iterations do nothing.", "Name 1 or more.")
        if not 1 < self.least_speedup < 100:
            found = f"A least speedup of {self.least_speedup:g} accepts anything, or nothing."
            raise UsageError(found, "Name more than 1, like 1.05.")


@dataclass(frozen=True)
class Offer:
    """What a study accepted for a kernel's product."""

    study: str
    what: str
    """In a line, with its speedups."""


class ScriptDoors(Protocol):
    """What the loop needs of the world."""

    def profile(self) -> Sequence[Report]:
        """Run the script and diagnose it, one report a process."""

    def propose(self, target: str, workload: Workload) -> Offer | None:
        """Run a study of a product; `None` = it accepted nothing."""

    def apply(self, offer: Offer) -> None:
        """Put what a study accepted where the script finds it."""

    def revert(self, offer: Offer) -> None:
        """Take it out again, to the byte."""

    def agrees(self, question: str) -> bool:
        """Ask the user."""

    def say(self, text: str) -> None:
        """Tell the user."""


@dataclass(frozen=True)
class Step:
    """What became of one kernel."""

    kernel: str
    workload: Workload | None
    kept: bool
    why: str
    speedup: float | None = None
    """Of the whole script; `None` = it was not applied."""


@dataclass(frozen=True)
class _Seen:
    """A script's kernels, by the name that selection knows them by."""

    total_us: float
    kernels: dict[str, ReportKernel]
    order: tuple[Selected, ...]


def improve_script(doors: ScriptDoors, options: ScriptOptions) -> tuple[Step, ...]:
    """Try the script's kernels one after the other; each change is kept or taken back.

    Args:
        doors: to the machine, the user, the files.
        options: when a change is kept.

    Raises:
        ProfilingError: the script cannot be profiled.
        MeasurementError: there is no GPU.
    """
    seen = _seen(doors.profile())
    _show(doors, seen)
    steps: list[Step] = []
    tried: set[Workload] = set()
    for place in seen.order:
        if place.passed_over is not None or sum(s.workload is not None for s in steps) >= (
            options.iterations
        ):
            break
        kernel = seen.kernels[place.workload]
        workload = product_of(kernel.timeline.op if kernel.timeline else None)
        if workload in tried:
            continue
        if workload is None:
            steps.append(_unknown(place, kernel))
            doors.say(f"  {steps[-1].kernel}: {steps[-1].why}")
            continue
        tried.add(workload)
        step, seen_now = _tried(doors, options, place, workload, seen)
        seen = seen_now
        steps.append(step)
        doors.say(f"  {'kept' if step.kept else 'not kept'}: {step.why}")
    _sum_up(doors, steps)
    return tuple(steps)


def _tried(
    doors: ScriptDoors, options: ScriptOptions, place: Selected, workload: Workload, seen: _Seen
) -> tuple[Step, _Seen]:
    """One product: a study, a question, and the script before and after."""
    name = _short(place.workload)
    doors.say(f"\n{workload.shape_text} ({name}): {place.why}")
    if not doors.agrees(f"Run a study of {workload.shape_text}?"):
        return Step(name, workload, False, "you said no"), seen
    offer = doors.propose(target_of(workload), workload)
    if offer is None:
        why = f"the study accepted nothing faster for {workload.shape_text}"
        return Step(name, workload, False, why), seen
    if not doors.agrees(f"{offer.what}\nApply it and run the script again?"):
        return Step(name, workload, False, "you said no"), seen
    doors.apply(offer)
    try:
        after = _seen(doors.profile())
    except BaseException as error:
        doors.revert(offer)
        if not isinstance(error, KernelCompassError):
            raise
        why = f"the script no longer runs with it ({shortened(error.found)}); it was taken back"
        return Step(name, workload, False, why), seen
    speedup = seen.total_us / after.total_us
    measured = f"{seen.total_us:,.1f} us of GPU time before, {after.total_us:,.1f} after"
    if speedup >= options.least_speedup:
        return Step(name, workload, True, f"{speedup:.3f} times faster: {measured}", speedup), after
    doors.revert(offer)
    why = f"{speedup:.3f} times is under {options.least_speedup:g} ({measured}); it was taken back"
    if _unchanged(place, seen, after):
        why += (
            ". The same kernel ran: does the script hand its weights over? "
            "(kernel_compass.dispatch.load, prepare, bmm or linear; docs/dispatch.md)"
        )
    return Step(name, workload, False, why, speedup), seen


def _seen(reports: Sequence[Report]) -> _Seen:
    """All kernels of all processes; their time is that on the GPU."""
    kernels: dict[str, ReportKernel] = {}
    measured = []
    for report in reports:
        for one in report.kernels:
            stats = one.kernel.duration_stats
            if stats is None:
                continue
            op = one.timeline.op if one.timeline and one.timeline.op else None
            name = f"{op}: {one.kernel.name}" if op else one.kernel.name
            while name in kernels:
                name += "'"
            kernels[name] = one
            diagnosis = one.kernel.diagnosis
            headroom = diagnosis.headroom if diagnosis else None
            floor = stats.total / max(headroom.value, 1.0) if headroom else None
            if floor is not None:
                floor *= _less_bytes(product_of(op))
            measured.append(Measured(name, Regime.IN_SITU, stats.total, floor))
    total = sum(one.time_us for one in measured)
    if total <= 0:
        raise UsageError("The script's kernels have no times.", "Profile it on a GPU.")
    # Without a calibration no floor is known: share alone decides what is tried first.
    order = select(measured)
    if all(one.floor_us is None for one in measured):
        order = select([Measured(m.workload, m.regime, m.time_us, 1e-9) for m in measured])
    return _Seen(total, kernels, tuple(order))


def _less_bytes(workload: Workload | None) -> float:
    """What 8-bit weights leave of a product's 16-bit floor: another format is what may pay."""
    if workload is None:
        return 1.0
    weights = workload.weights
    others = workload.heads * workload.tokens * (workload.reduction + workload.columns)
    return (0.5 * weights + others) / (weights + others)


def _unchanged(place: Selected, before: _Seen, after: _Seen) -> bool:
    one, other = before.kernels[place.workload], after.kernels.get(place.workload)
    return other is not None and one.kernel.launches == other.kernel.launches


def _unknown(place: Selected, kernel: ReportKernel) -> Step:
    op = kernel.timeline.op if kernel.timeline else None
    why = f"{op} is no product that can be replaced" if op else "its operator is not known"
    return Step(_short(place.workload), None, False, why)


def _show(doors: ScriptDoors, seen: _Seen) -> None:
    doors.say(f"{seen.total_us:,.1f} us of GPU time; what is worth trying first:")
    for one in seen.order[:MOST_SHOWN]:
        diagnosis = seen.kernels[one.workload].kernel.diagnosis
        limiter = diagnosis.limiter.value if diagnosis else "not diagnosed"
        passed = f"passed over, {one.passed_over.value}: " if one.passed_over else ""
        doors.say(f"  {_short(one.workload)}  {limiter}\n    {passed}{one.why}")


def _sum_up(doors: ScriptDoors, steps: Sequence[Step]) -> None:
    kept = [one for one in steps if one.kept]
    if not any(one.workload for one in steps):
        doors.say("Nothing here maps to a product (aten::mm, aten::bmm) that can be replaced.")
    doors.say(f"{len(kept)} kept of {sum(one.workload is not None for one in steps)} tried.")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
