"""Where the steps of a server's trace begin and end, on the GPU.

An event belongs to the step in which the CPU launched it: the GPU may run it when the CPU is in the
next one already. A step lasts from its first event to the first of the step after it. Steps of
several sorts are not averaged: a server's call of its model with new prompts is another one than
that which only decodes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean

from kernel_compass.analysis.timeline_spans import device_uses
from kernel_compass.records.trace import GpuEvent, StepMark, Trace
from kernel_compass.units import duration_text

PROFILER = "ProfilerStep"
WHOLE = "the whole trace"
DECODE, PROMPTS = (
    "a server's iteration without new prompts",
    "a server's iteration with new prompts",
)
UNEVEN = 1.5
"""From this ratio of their GPU times on, steps are said to differ."""
_NEW = re.compile(r"execute_(?:new|context)_(\d+)")


@dataclass(frozen=True)
class Steps:
    """The steps of a trace that are looked at."""

    what: str
    """`ProfilerStep`, or what a server calls its own."""
    kept: tuple[int, ...]
    """Places of their events in the trace."""
    count: int
    step_us: float
    """Of one, on the GPU; mean."""
    idle_us: float
    """Of one: no GPU had anything to do; mean."""
    notes: tuple[str, ...] = ()


@dataclass
class _Step:
    """A step as it is found."""

    sort: str
    events: list[int] = field(default_factory=list)


def steps_of(trace: Trace) -> Steps:
    """Cut a trace of one process into steps. Pure.

    Args:
        trace: at least one GPU event.
    """
    events = trace.events
    marks = trace.iterations or trace.steps
    steps = _cut(events, marks, bool(trace.iterations))
    used = [one for one in steps if one.events]
    if not used:
        span = max(event.end_us for event in events) - events[0].start_us
        idle = sum(use.idle_us for use in device_uses(events)[0])
        note = "the trace has no `ProfilerStep`: all of it is taken for one step"
        said = () if marks else (note,)
        return Steps(WHOLE, tuple(range(len(events))), 1, span, idle, said)
    sorts = Counter(one.sort for one in used)
    sort = max(sorts, key=lambda one: (sorts[one], one == DECODE))
    chosen = [one for one in used if one.sort == sort]
    starts = [events[one.events[0]].start_us for one in used]
    windows = [
        (start, end)
        for one, start, end in zip(used, starts, [*starts[1:], None], strict=True)
        if one.sort == sort
    ]
    closed = [(start, end) for start, end in windows if end is not None and end > start]
    if not closed:
        last = max(events[at].end_us for at in chosen[-1].events)
        closed = [(windows[-1][0], last)]
    busy = _Busy(events)
    kept = tuple(sorted(at for one in chosen for at in one.events))
    return Steps(
        sort,
        kept,
        len(chosen),
        fmean(end - start for start, end in closed),
        fmean(busy.idle_us(start, end) for start, end in closed),
        tuple(_notes(events, steps, chosen)),
    )


def _cut(events: Sequence[GpuEvent], marks: Sequence[StepMark], server: bool) -> list[_Step]:
    """The steps in order, each with the events that were launched in it."""
    steps = [_Step(_sort(one.name) if server else PROFILER) for one in marks]
    starts = [one.start_us for one in marks]
    last: dict[tuple[int, int], int] = {}
    for place, event in enumerate(events):
        stream = (event.device, event.stream)
        at = last.get(stream, -1)
        if event.call is not None:
            at = bisect_right(starts, event.call.start_us) - 1
            # a server samples behind its model's call; the profiler's steps are closed
            if at >= 0 and not server and event.call.start_us > marks[at].end_us:
                at = -1
        last[stream] = at
        if at >= 0:
            steps[at].events.append(place)
    return steps


def _sort(name: str) -> str:
    found = _NEW.match(name)
    return PROMPTS if found and int(found[1]) else DECODE


class _Busy:
    """When the GPUs of a trace had something to do."""

    def __init__(self, events: Sequence[GpuEvent]) -> None:
        self._ends: dict[int, list[float]] = {}
        self._sums: dict[int, list[float]] = {}
        """Of each GPU: ends of the times without a gap, and how long it was busy until then."""
        self._starts: dict[int, list[float]] = {}
        for event in events:
            ends = self._ends.setdefault(event.device, [])
            starts = self._starts.setdefault(event.device, [])
            if ends and event.start_us <= ends[-1]:
                ends[-1] = max(ends[-1], event.end_us)
            else:
                starts.append(event.start_us)
                ends.append(event.end_us)
        for device, ends in self._ends.items():
            pieces = zip(self._starts[device], ends, strict=True)
            self._sums[device] = list(accumulate(end - start for start, end in pieces))

    def idle_us(self, start_us: float, end_us: float) -> float:
        """Time between two borders in which a GPU did nothing, of all of them."""
        return sum(
            end_us - start_us - (self._until(device, end_us) - self._until(device, start_us))
            for device in self._ends
        )

    def _until(self, device: int, time_us: float) -> float:
        """How long a GPU was busy before a time."""
        at = bisect_right(self._starts[device], time_us) - 1
        if at < 0:
            return 0.0
        return self._sums[device][at] - max(self._ends[device][at] - time_us, 0.0)


def _notes(
    events: Sequence[GpuEvent], steps: Sequence[_Step], chosen: Sequence[_Step]
) -> list[str]:
    notes = []
    inside = sum(len(one.events) for one in steps)
    if inside < len(events):
        count = len(events) - inside
        notes.append(f"{count:,} of {len(events):,} GPU events lie in no step and are left out")
    others = sum(bool(one.events) for one in steps) - len(chosen)
    if others:
        notes.append(f"{others:,} steps of another sort are left out")
    busy = [sum(events[at].duration_us for at in one.events) for one in chosen]
    if min(busy) > 0 and max(busy) > UNEVEN * min(busy):
        low, high = duration_text(min(busy)), duration_text(max(busy))
        notes.append(f"its steps differ: their GPU work takes {low} to {high}; figures are means")
    return notes
