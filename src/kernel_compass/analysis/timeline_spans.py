"""When streams and GPUs were busy, and what stood between their events. Microseconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernel_compass.records.timeline import DeviceUse, Gap, StreamUse
from kernel_compass.records.trace import GpuEvent, GpuWork

LARGEST = 5
"""Gaps that are named."""


@dataclass(frozen=True, slots=True)
class Before:
    """What came before an event in its stream."""

    gap_us: float | None
    """Idle time of the stream, 0 where events overlap; `None` for the first."""
    late_us: float | None
    """The part of it that passed before the event's launch was handed over."""
    opens_replay: bool = False
    """Whether the event is the first of a graph's replay in its stream: the gap before it is that
    of the whole graph's launch, and not the event's own."""

    @property
    def own_gap_us(self) -> float | None:
        """The gap that the event's own launch can have made."""
        return None if self.opens_replay else self.gap_us

    @property
    def own_late_us(self) -> float | None:
        """The late part of that gap."""
        return None if self.opens_replay else self.late_us


def same_launch_unit(event: GpuEvent, before: GpuEvent) -> bool:
    """Whether no border of a graph's replay lies between two events of one stream."""
    if not (event.in_graph or before.in_graph):
        return True
    return event.call == before.call


def late_us(event: GpuEvent, idle_from: float) -> float | None:
    """How long the GPU had idled when the CPU had handed the event over.

    Returns:
        Microseconds, at most until the event's start; `None` where its call is not known.
    """
    if event.call is None:
        return None
    return max(min(event.call.end_us, event.start_us) - idle_from, 0.0)


def gaps_before(events: Sequence[GpuEvent], linked: bool = True) -> list[Before]:
    """For each event, in their order, the gap before it in its stream.

    Args:
        events: in order of their start.
        linked: whether the clock of the calls can be compared with the GPU's.
    """
    ends: dict[tuple[int, int], float] = {}
    lasts: dict[tuple[int, int], GpuEvent] = {}
    found = []
    for event in events:
        stream = (event.device, event.stream)
        end = ends.get(stream)
        if end is None:
            found.append(Before(None, None, event.in_graph))
        else:
            gap = max(event.start_us - end, 0.0)
            late = late_us(event, end) if gap > 0 else 0.0
            opens = event.in_graph and not same_launch_unit(event, lasts[stream])
            found.append(Before(gap, late if linked else None, opens))
        lasts[stream] = event
        ends[stream] = max(event.end_us, event.end_us if end is None else end)
    return found


def stream_uses(events: Iterable[GpuEvent]) -> tuple[StreamUse, ...]:
    """Every stream, the busiest first."""
    streams: dict[tuple[int, int], list[GpuEvent]] = {}
    for event in events:
        streams.setdefault((event.device, event.stream), []).append(event)
    uses = [_stream(*key, members) for key, members in streams.items()]
    return tuple(sorted(uses, key=lambda use: -use.busy_us))


def _stream(device: int, stream: int, events: Sequence[GpuEvent]) -> StreamUse:
    pieces = _busy(events)
    busy = sum(piece.end_us - piece.start_us for piece in pieces)
    span = pieces[-1].end_us - pieces[0].start_us
    return StreamUse(
        device=device,
        stream=stream,
        events=len(events),
        span_us=span,
        busy_us=busy,
        gaps_us=max(span - busy, 0.0),
        gaps=len(pieces) - 1,
        overlap_us=max(sum(event.duration_us for event in events) - busy, 0.0),
    )


@dataclass(slots=True)
class _Piece:
    """A time without a gap, with the events at its ends."""

    start_us: float
    end_us: float
    first: GpuEvent
    last: GpuEvent


def _busy(events: Iterable[GpuEvent]) -> list[_Piece]:
    """The union of the events' times; they come in order of their start."""
    pieces: list[_Piece] = []
    for event in events:
        if pieces and event.start_us <= pieces[-1].end_us:
            if event.end_us > pieces[-1].end_us:
                pieces[-1].end_us, pieces[-1].last = event.end_us, event
        else:
            pieces.append(_Piece(event.start_us, event.end_us, event, event))
    return pieces


def device_uses(
    events: Sequence[GpuEvent], linked: bool = True
) -> tuple[tuple[DeviceUse, ...], tuple[Gap, ...]]:
    """Every GPU by its number, and the largest gaps of all of them.

    Args:
        events: in order of their start.
        linked: whether the clock of the calls can be compared with the GPU's.
    """
    devices: dict[int, list[GpuEvent]] = {}
    for event in events:
        devices.setdefault(event.device, []).append(event)
    uses, largest = [], []
    for device in sorted(devices):
        use, gaps = _device(device, devices[device], linked)
        uses.append(use)
        largest += gaps
    return tuple(uses), tuple(heapq.nlargest(LARGEST, largest, key=lambda gap: gap.duration_us))


def _device(device: int, events: Sequence[GpuEvent], linked: bool) -> tuple[DeviceUse, list[Gap]]:
    pieces = _busy(events)
    gaps = [
        Gap(
            device=device,
            start_us=before.end_us,
            duration_us=after.start_us - before.end_us,
            before=before.last.name,
            after=after.first.name,
            late_us=late_us(after.first, before.end_us) if linked else None,
        )
        for before, after in pairwise(pieces)
    ]
    late = [gap.late_us for gap in gaps if gap.late_us is not None]
    busy = sum(piece.end_us - piece.start_us for piece in pieces)
    span = pieces[-1].end_us - pieces[0].start_us
    kernel = sum(e.duration_us for e in events if e.work is GpuWork.KERNEL)
    use = DeviceUse(
        device=device,
        span_us=span,
        busy_us=busy,
        idle_us=max(span - busy, 0.0),
        gaps=len(gaps),
        late_us=sum(late) if late or not gaps else None,
        kernel_us=kernel,
        copy_us=sum(e.duration_us for e in events if e.work is not GpuWork.KERNEL),
    )
    return use, heapq.nlargest(LARGEST, gaps, key=lambda gap: gap.duration_us)
