"""A captured step and its traces -> its kernels: which operator, line and region launched each.

One trace shows the step as it is, the other has a range around every operator, which slows the
CPU and not the kernels. Kernels of both are matched in order, by their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from statistics import median

from kernel_compass.analysis.op_traffic import traffic_of
from kernel_compass.analysis.step_counters import Counted
from kernel_compass.analysis.timeline_diagnosis import Floor
from kernel_compass.analysis.timeline_groups import OWN_SHARE
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_capture import SourceLine, StepCapture, StepKernel
from kernel_compass.records.trace import GpuEvent, Trace

LimiterOf = Callable[[GpuEvent], str | None]


@dataclass(frozen=True)
class Place:
    """What launched a kernel."""

    op: int | None = None
    launch: int | None = None
    region: int | None = None


@dataclass
class _Row:
    """All launches of a kernel from one place, in one step."""

    name: str
    place: Place
    time_us: float = 0.0
    gap_us: float = 0.0
    launches: int = 0
    floor_us: float | None = None
    traffic_us: float | None = 0.0
    """Floor by the bytes that ncu counted; `None` = it is not known of all launches."""
    limiters: Counter[str] = field(default_factory=Counter)
    """By the time of the launches that each bounds, ns."""
    counted: bool = False

    def bounded(self, counted: Counted | None, otherwise: str | None, time_us: float) -> None:
        """Add what limits one launch: counters know it better than a timeline."""
        if counted is not None and not self.counted:
            self.counted, self.limiters = True, Counter()
        limiter = counted.limiter if counted is not None else otherwise
        if limiter is not None and self.counted == (counted is not None):
            self.limiters[limiter] += max(round(1e3 * time_us), 1)
        least = None if counted is None else counted.floor_us
        known = self.traffic_us is not None and least is not None
        self.traffic_us = (self.traffic_us or 0.0) + (least or 0.0) if known else None


def joined(
    capture: StepCapture,
    times: Trace,
    marks: Trace,
    floor: Floor | None = None,
    limiter: LimiterOf | None = None,
    counted: Sequence[Counted | None] = (),
) -> StepCapture:
    """The capture with its kernels. Pure.

    Args:
        capture: operators, launches, regions and the step's time.
        times: several steps as they are, each in a range `kc:N:`.
        marks: one step with ranges around its parts.
        floor: the least time of an operator.
        limiter: what bounds a kernel, by the timeline.
        counted: of each event of `usual_steps(times)[0]` what ncu's counters say.
    """
    steps = usual_steps(times)
    if not steps:
        note = "the trace of the step holds no kernels"
        return replace(capture, notes=(*capture.notes, note))
    marked = max(_steps(marks).values(), key=len, default=[])
    twins = _aligned(steps[0], marked)
    places = [place_of(None if twin is None else twin.mark) for twin in twins]
    floors = _floors(marked, floor)
    rows: dict[tuple[str, Place], _Row] = {}
    for at, (event, twin, place) in enumerate(zip(steps[0], twins, places, strict=True)):
        key = (event.name, place)
        row = rows.setdefault(key, _Row(event.name, place))
        row.time_us += median(step[at].duration_us for step in steps)
        row.gap_us += median(_gap(step, at) for step in steps)
        row.launches += 1
        row.bounded(
            counted[at] if counted else None, limiter(event) if limiter else None, event.duration_us
        )
        least = None if twin is None else floors.get(id(twin))
        row.floor_us = least if row.floor_us is None else row.floor_us + (least or 0.0)
    busy = median(map(_busy, steps))
    step_us = capture.step_us
    idle = None if step_us is None else max(step_us - busy, 0.0)
    return replace(
        capture,
        kernels=_kernels(capture, list(rows.values()), idle),
        idle_us=idle,
        notes=(*capture.notes, *_notes(places, twins, steps[0])),
    )


def place_of(mark: str | None) -> Place:
    """`kc:0:o17` is operator 17, `kc:0:l2` launch 2, `kc:0:r1` region 1."""
    what = (mark or "").rpartition(":")[2]
    if not what[1:].isdecimal():
        return Place()
    number = int(what[1:])
    return {"o": Place(op=number), "l": Place(launch=number), "r": Place(region=number)}.get(
        what[0], Place()
    )


def _steps(trace: Trace) -> dict[str, list[GpuEvent]]:
    """A trace's GPU events by the step in whose range they were launched, in order."""
    found: dict[str, list[GpuEvent]] = {}
    for event in trace.events:
        if event.mark is not None:
            found.setdefault(event.mark.split(":")[1], []).append(event)
    return found


def usual_steps(trace: Trace) -> list[list[GpuEvent]]:
    """The steps of a trace that ran the kernels that most steps ran, each in order."""
    steps = _steps(trace)
    counts = Counter(tuple(event.name for event in step) for step in steps.values())
    if not counts:
        return []
    usual = counts.most_common(1)[0][0]
    return [s for s in steps.values() if tuple(event.name for event in s) == usual]


def _aligned(events: Sequence[GpuEvent], marked: Sequence[GpuEvent]) -> list[GpuEvent | None]:
    """For each event the one of the other trace that is the same launch."""
    names, others = [e.name for e in events], [e.name for e in marked]
    if names == others:
        return list(marked)
    found: list[GpuEvent | None] = [None] * len(events)
    for a, b, size in SequenceMatcher(None, names, others, autojunk=False).get_matching_blocks():
        found[a : a + size] = marked[b : b + size]
    return found


def _floors(marked: Sequence[GpuEvent], floor: Floor | None) -> dict[int, float]:
    """The least time of events that are nearly all of their operator, by the event."""
    calls: dict[int, list[GpuEvent]] = {}
    for event in marked:
        if event.op_id is not None:
            calls.setdefault(event.op_id, []).append(event)
    found: dict[int, float] = {}
    for events in calls.values():
        largest = max(events, key=lambda event: event.duration_us)
        if largest.duration_us < OWN_SHARE * sum(event.duration_us for event in events):
            continue
        traffic = traffic_of(largest.op) if largest.op else None
        least = floor(traffic, Regime.IN_SITU) if floor and traffic else None
        if least is not None and least > 0:
            found[id(largest)] = least
    return found


def _gap(step: Sequence[GpuEvent], at: int) -> float:
    """Idle time of the GPU before an event; the first has none that is its own."""
    if at == 0:
        return 0.0
    return max(step[at].start_us - max(event.end_us for event in step[max(at - 8, 0) : at]), 0.0)


def _busy(step: Sequence[GpuEvent]) -> float:
    total, end = 0.0, step[0].start_us
    for event in step:
        total += max(event.end_us - max(event.start_us, end), 0.0)
        end = max(end, event.end_us)
    return total


def _kernels(
    capture: StepCapture, rows: Sequence[_Row], idle_us: float | None
) -> tuple[StepKernel, ...]:
    """Records of the rows; gaps, which a profiler widens, add up to the step's idle time."""
    gaps = sum(row.gap_us for row in rows)
    scale = 1.0 if idle_us is None or gaps <= 0 else min(idle_us / gaps, 1.0)
    return tuple(
        StepKernel(
            name=row.name,
            time_us=row.time_us,
            launches=float(row.launches),
            op=row.place.op,
            launch=row.place.launch,
            region=row.place.region,
            limiter=next((name for name, _ in row.limiters.most_common(1)), None),
            floor_us=row.traffic_us if row.floor_us is None else row.floor_us,
            line=line_of(capture, row.place),
            gap_us=row.gap_us * scale,
            counted=row.counted,
            floor_basis=_basis(row),
        )
        for row in rows
    )


def _basis(row: _Row) -> str | None:
    if row.floor_us is not None:
        return "compulsory"
    return None if row.traffic_us is None else "traffic"


def line_of(capture: StepCapture, place: Place) -> SourceLine | None:
    """The line of what launched a kernel."""
    if place.op is not None and place.op < len(capture.ops):
        return capture.ops[place.op].line
    if place.launch is not None and place.launch < len(capture.launches):
        return capture.launches[place.launch].line
    if place.region is not None and place.region < len(capture.regions):
        return capture.regions[place.region].line
    return None


def _notes(
    places: Sequence[Place], twins: Sequence[GpuEvent | None], events: Sequence[GpuEvent]
) -> list[str]:
    total = sum(event.duration_us for event in events)
    lost = sum(e.duration_us for e, p in zip(events, places, strict=True) if p == Place())
    notes = []
    if any(twin is None for twin in twins):
        notes.append("the step ran other kernels while its operators were marked")
    if total > 0 and lost > 0.005 * total:
        notes.append(f"{100 * lost / total:.1f} % of the kernels' time is joined to no operator")
    return notes
