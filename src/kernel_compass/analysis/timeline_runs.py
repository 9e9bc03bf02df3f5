"""Launch-bound runs: consecutive kernels of a stream that cost more to launch than to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_compass.analysis.timeline_spans import Before, same_launch_unit
from kernel_compass.records.timeline import LaunchRun
from kernel_compass.records.trace import GpuEvent, GpuWork

TYPICAL_T0_US = 0.9
"""What a launch in a CUDA graph costs at least where no calibration says it (measured on an H200:
0.86 us)."""
OWN_US = 3.6
"""A kernel that takes less than this beyond the fixed cost is near it."""
SHORT_US = 20.0
"""A longer kernel is not launch-bound, whatever the gap before it. Like the next one typical of
programs that launch through PyTorch, whichever the GPU."""
LAUNCH_GAP_US = 200.0
"""A longer gap is no cost of a launch: the program waited for something else."""
MIN_KERNELS = 3
SHOWN = 10


@dataclass(frozen=True)
class FixedCost:
    """What a launch costs the GPU, however little its kernel does."""

    t0_us: float = TYPICAL_T0_US
    calibrated: bool = False
    """Whether it is the GPU's own, from its calibration, and not a typical value."""

    @classmethod
    def of(cls, t0_us: float | None) -> FixedCost:
        """A calibration's `t0_graph_us`, or the typical value where there is none."""
        return cls() if t0_us is None else cls(t0_us, calibrated=True)

    @property
    def near_us(self) -> float:
        """Kernels up to this duration are near the fixed cost."""
        return self.t0_us + OWN_US


TYPICAL = FixedCost()


@dataclass(frozen=True)
class Runs:
    """What was found in one trace."""

    runs: tuple[LaunchRun, ...]
    """Runs of the same kernels are one entry; the longest span first, `SHOWN` of them."""
    span_us: float
    busy_us: float
    members: frozenset[int]
    """Indices of the events that belong to a run."""


def costs_its_launch(event: GpuEvent, before: Before, fixed: FixedCost = TYPICAL) -> bool:
    """Whether an event is as short as the fixed cost, or shorter than the gap before it."""
    if event.duration_us <= fixed.near_us:
        return True
    gap = before.own_gap_us
    return gap is not None and event.duration_us <= SHORT_US and _dominates(gap, event.duration_us)


def _dominates(gap_us: float, duration_us: float) -> bool:
    return duration_us <= gap_us <= LAUNCH_GAP_US


def launch_runs(
    events: Sequence[GpuEvent], before: Sequence[Before], fixed: FixedCost = TYPICAL
) -> Runs:
    """All launch-bound runs.

    Args:
        events: in order of their start.
        before: for each of them, what came before it in its stream.
        fixed: what a launch costs on this GPU.
    """
    found: dict[tuple[int, int, bool, tuple[str, ...]], LaunchRun] = {}
    members: set[int] = set()
    for run in _all(events, before, fixed):
        kernels = [at for at in run if events[at].work is GpuWork.KERNEL]
        if len(kernels) < MIN_KERNELS:
            continue
        members.update(run)
        names = tuple(events[at].name for at in kernels)
        first = events[run[0]]
        key = (first.device, first.stream, first.in_graph, names)
        found[key] = _added(found.get(key), [events[at] for at in run], len(kernels))
    ranked = sorted(found.values(), key=lambda run: -run.span_us)
    return Runs(
        runs=tuple(ranked[:SHOWN]),
        span_us=sum(run.span_us for run in ranked),
        busy_us=sum(run.busy_us for run in ranked),
        members=frozenset(members),
    )


def _all(
    events: Sequence[GpuEvent], before: Sequence[Before], fixed: FixedCost
) -> Iterator[list[int]]:
    """Indices of consecutive events of one stream that cost their launch, never over the border of
    a graph's replay: a run of one replay ends with it."""
    open_runs: dict[tuple[int, int], list[int]] = {}
    for at, event in enumerate(events):
        stream = (event.device, event.stream)
        run = open_runs.get(stream)
        gap = before[at].gap_us
        costs = costs_its_launch(event, before[at], fixed)
        if run and (
            not costs
            or (gap or 0.0) > LAUNCH_GAP_US
            or not same_launch_unit(event, events[run[-1]])
        ):
            yield open_runs.pop(stream)
        if costs:
            open_runs.setdefault(stream, []).append(at)
    yield from open_runs.values()


def _added(known: LaunchRun | None, events: Sequence[GpuEvent], kernels: int) -> LaunchRun:
    """One more run of the same kernels."""
    names = [event.name for event in events if event.work is GpuWork.KERNEL]
    end, busy = events[0].start_us, 0.0
    for event in events:
        busy += max(event.end_us - max(event.start_us, end), 0.0)
        end = max(end, event.end_us)
    return LaunchRun(
        kernels=kernels,
        first=names[0],
        last=names[-1],
        repeats=1 + (known.repeats if known else 0),
        span_us=end - events[0].start_us + (known.span_us if known else 0.0),
        busy_us=busy + (known.busy_us if known else 0.0),
        in_graph=events[0].in_graph,
        device=events[0].device,
        stream=events[0].stream,
    )
