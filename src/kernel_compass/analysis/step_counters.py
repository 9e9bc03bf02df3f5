"""Launches that ncu counted, joined to a step's timeline: what limits each, and its floor.

ncu runs the step once more in a range of its own, one launch after the other, and spells names its
own way. So launches are paired in order: the n-th with a base name, grid and block is the n-th with
the same there, and only where the words of both names agree. Where one side has more of them than
the other, the step did something else under ncu, and nothing is told of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernel_compass.analysis.bottleneck import diagnose_kernel
from kernel_compass.analysis.joining import decided
from kernel_compass.analysis.timeline_match import Seen, alike, base_name
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.profile import Dim3, KernelProfile, Profile
from kernel_compass.records.trace import GpuEvent, GpuWork

TOLD = 3
"""Kernels that a note names at most."""


@dataclass(frozen=True)
class Counted:
    """What counters say of one launch of a step."""

    limiter: str
    floor_us: float | None
    """For the bytes that it moved; `None` without a calibration."""


@dataclass(frozen=True)
class Paired:
    """A step's events, each with the launch that ncu counted."""

    launches: tuple[KernelProfile | None, ...]
    notes: tuple[str, ...] = ()


def paired(events: Sequence[GpuEvent], launches: Sequence[KernelProfile]) -> Paired:
    """Find each event's launch under ncu. Pure.

    Args:
        events: of one step.
        launches: of the same step under ncu, single ones, in the order of launching.
    """
    kernels = [at for at, event in enumerate(events) if event.work is GpuWork.KERNEL]
    kernels.sort(key=lambda at: _launched(events[at]))
    mine: dict[_Key, list[int]] = {}
    for at in kernels:
        shape = events[at].shape
        mine.setdefault((base_name(events[at].name), shape.grid, shape.block), []).append(at)
    theirs: dict[_Key, list[KernelProfile]] = {}
    for one in launches:
        theirs.setdefault((base_name(one.name), one.grid, one.block), []).append(one)
    found: list[KernelProfile | None] = [None] * len(events)
    for key, places in mine.items():
        for at, one in _in_order(events, places, theirs.get(key, [])):
            found[at] = one
    return Paired(tuple(found), tuple(_notes(events, kernels, found, launches)))


def counted(
    events: Sequence[GpuEvent],
    pairs: Sequence[KernelProfile | None],
    capture: Profile,
    calibration: Calibration | None = None,
    seen: Seen | None = None,
) -> list[Counted | None]:
    """What the counters say of each event that has a launch.

    Args:
        events: of one step.
        pairs: of each event the launch, as `paired` found them.
        capture: that the launches are from.
        calibration: of the GPU: floors.
        seen: what the timeline shows of a kernel: confirms that one is bound by its launch.
    """
    found: list[Counted | None] = []
    for event, launch in zip(events, pairs, strict=True):
        if launch is None:
            found.append(None)
            continue
        kernel = replace(launch, name=event.name)
        judge = partial(
            diagnose_kernel,
            kernel,
            source=capture.source,
            device=capture.device,
            calibration=calibration,
        )
        diagnosis = decided(kernel, judge, seen)
        head, stats = diagnosis.headroom, kernel.duration_stats
        floor = None if head is None or stats is None else stats.mean / head.value
        found.append(Counted(diagnosis.limiter.value, floor))
    return found


_Key = tuple[str, Dim3 | None, Dim3 | None]


def _launched(event: GpuEvent) -> tuple[float, float]:
    """When it was launched; a graph's kernels, launched at once, as they ran."""
    return (event.start_us if event.call is None else event.call.start_us, event.start_us)


def _in_order(
    events: Sequence[GpuEvent], places: Sequence[int], launches: Sequence[KernelProfile]
) -> list[tuple[int, KernelProfile]]:
    """Pairs of one base name, grid and block."""
    rows = list(zip(places, launches, strict=False))
    if len(places) == len(launches) and all(_same(events[at].name, one.name) for at, one in rows):
        return rows
    found: list[tuple[int, KernelProfile]] = []
    for name in dict.fromkeys(events[at].name for at in places):  # of those, whole names that agree
        of_name = [at for at in places if events[at].name == name]
        others = [one for one in launches if one.name == name]
        others = others or [one for one in launches if alike(name, one.name)]
        if not others or len(of_name) != len(others):
            continue
        rivals = {events[at].name for at in places if alike(events[at].name, others[0].name)}
        if others[0].name == name or len(rivals) == 1:
            found += zip(of_name, others, strict=True)
    return found


def _same(one: str, other: str) -> bool:
    return one == other or alike(one, other)


def _notes(
    events: Sequence[GpuEvent],
    kernels: Sequence[int],
    found: Sequence[KernelProfile | None],
    launches: Sequence[KernelProfile],
) -> list[str]:
    used = {id(one) for one in found if one is not None}
    lost = [events[at].name for at in kernels if found[at] is None]
    left = [one.name for one in launches if id(one) not in used]
    total = sum(events[at].duration_us for at in kernels)
    known = sum(events[at].duration_us for at in kernels if found[at] is not None)
    share = 100 * known / total if total > 0 else 0.0
    notes = [
        f"limiters of {len(kernels) - len(lost):,} of {len(kernels):,} launches, "
        f"{share:.1f} % of the kernels' time, are those of ncu's counters"
    ]
    if lost:
        notes.append(f"ncu counted none, or another number, of {_some(lost)}")
    if left:
        notes.append(f"ncu counted what the step's timeline has not so often: {_some(left)}")
    return notes


def _some(names: Sequence[str]) -> str:
    """`3 x gemm, 1 x silu and 2 more`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[base_name(name)] = counts.get(base_name(name), 0) + 1
    rows = [f"{count} x {name}" for name, count in counts.items()]
    more = f" and {len(rows) - TOLD} more" if len(rows) > TOLD else ""
    return ", ".join(rows[:TOLD]) + more
