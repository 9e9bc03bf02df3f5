"""Launch-bound runs: consecutive kernels of a stream that cost more to launch than to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_compass.analysis.timeline_spans import Before
from kernel_compass.records.timeline import LaunchRun
from kernel_compass.records.trace import GpuEvent, GpuWork

NEAR_FIXED_US = 4.5
"""A kernel this short is within about three times what an empty one takes."""
SHORT_US = 20.0
"""A kernel longer than this is no matter of launches, whatever the gap before it."""
LAUNCH_GAP_US = 200.0
"""A longer gap is no cost of a launch: the program waited for something else."""
MIN_KERNELS = 3
SHOWN = 10


@dataclass(frozen=True)
class Runs:
    """What was found in one trace."""

    runs: tuple[LaunchRun, ...]
    """Runs of the same kernels are one entry; the longest span first, `SHOWN` of them."""
    span_us: float
    busy_us: float
    members: frozenset[int]
    """Indices of the events that belong to a run."""


def costs_its_launch(event: GpuEvent, before: Before) -> bool:
    """Whether an event is as short as the fixed cost, or shorter than the gap before it."""
    if event.duration_us <= NEAR_FIXED_US:
        return True
    gap = before.gap_us
    return gap is not None and event.duration_us <= SHORT_US and _dominates(gap, event.duration_us)


def _dominates(gap_us: float, duration_us: float) -> bool:
    return duration_us <= gap_us <= LAUNCH_GAP_US


def launch_runs(events: Sequence[GpuEvent], before: Sequence[Before]) -> Runs:
    """All launch-bound runs.

    Args:
        events: in order of their start.
        before: for each of them, what came before it in its stream.
    """
    found: dict[tuple[int, int, bool, tuple[str, ...]], LaunchRun] = {}
    members: set[int] = set()
    for run in _all(events, before):
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


def _all(events: Sequence[GpuEvent], before: Sequence[Before]) -> Iterator[list[int]]:
    """Indices of consecutive events of one stream that cost their launch."""
    open_runs: dict[tuple[int, int], list[int]] = {}
    for at, event in enumerate(events):
        stream = (event.device, event.stream)
        run = open_runs.get(stream)
        gap = before[at].gap_us
        if run and (
            not costs_its_launch(event, before[at])
            or (gap or 0.0) > LAUNCH_GAP_US
            or event.in_graph != events[run[-1]].in_graph
        ):
            yield open_runs.pop(stream)
            run = None
        if costs_its_launch(event, before[at]):
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
