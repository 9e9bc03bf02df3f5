"""The CPU's side of a timeline: what launches cost it, and whether it keeps up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from kernel_compass.records.timeline import Behind, CallUse, DeviceUse, OtherWork
from kernel_compass.records.trace import GpuEvent, GpuWork

IDLE_SHARE = 0.1
"""Under this idle share of the span nobody waits for the CPU."""
LATE_SHARE = 0.5
"""From this share of the idle time on, late launches are what the GPU waits for."""
SKEW_US = 1.0
SKEWED_SHARE = 0.01
"""Kernels cannot start before their launch is called; so many that do mean two clocks."""


def clock_skew(events: Sequence[GpuEvent]) -> str | None:
    """What is wrong with the clocks of CPU and GPU, `None` where they agree."""
    linked = [(event, event.call) for event in events if event.call is not None]
    early = [
        call.start_us - event.start_us
        for event, call in linked
        if event.start_us < call.start_us - SKEW_US
    ]
    if len(early) <= SKEWED_SHARE * len(linked):
        return None
    return (
        f"{len(early):,} of {len(linked):,} GPU events start before the call that launched them, "
        f"by up to {max(early):,.0f} us: the clocks of CPU and GPU disagree, so whether launches "
        "came late is not told."
    )


def launch_delays(events: Sequence[GpuEvent]) -> list[float | None]:
    """From the end of each launching call to the start on the GPU, 0 where the kernel ran before
    its call returned; `None` in a graph."""
    return [
        None if e.call is None or e.in_graph else max(e.start_us - e.call.end_us, 0.0)
        for e in events
    ]


def behind(uses: Sequence[DeviceUse], linked: bool) -> Behind:
    """Who waits for whom.

    Args:
        uses: the GPUs.
        linked: whether it is known when GPU events were launched.
    """
    span, idle = sum(u.span_us for u in uses), sum(u.idle_us for u in uses)
    if idle < IDLE_SHARE * span:
        return Behind.GPU
    late = [u.late_us for u in uses if u.late_us is not None]
    if not linked or not late:
        return Behind.UNKNOWN
    return Behind.CPU if sum(late) >= LATE_SHARE * idle else Behind.NEITHER


def call_uses(calls: Mapping[str, Sequence[float]]) -> tuple[CallUse, ...]:
    """The calls that hand over work, the most CPU time first."""
    uses = [CallUse(name, len(times), median(times), sum(times)) for name, times in calls.items()]
    return tuple(sorted(uses, key=lambda use: -use.total_us))


def other_work(events: Sequence[GpuEvent]) -> tuple[OtherWork, ...]:
    """Copies and fills by their kind, the longest first."""
    kinds: dict[str, list[GpuEvent]] = {}
    for event in events:
        if event.work is not GpuWork.KERNEL:
            kinds.setdefault(event.name, []).append(event)
    found = []
    for name, members in kinds.items():
        sizes = [event.bytes for event in members]
        known = [size for size in sizes if size is not None]
        total = sum(known) if len(known) == len(sizes) else None
        time = sum(event.duration_us for event in members)
        found.append(OtherWork(name, len(members), time, total))
    return tuple(sorted(found, key=lambda work: -work.total_us))
