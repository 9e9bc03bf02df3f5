"""Launches of a timeline grouped into kernels, as ncu's are: by device, name, grid and block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from kernel_compass.analysis.op_traffic import traffic_of
from kernel_compass.analysis.timeline_runs import Runs
from kernel_compass.analysis.timeline_spans import Before
from kernel_compass.records.profile import DurationStats, KernelProfile
from kernel_compass.records.timeline import KernelTimeline
from kernel_compass.records.trace import GpuEvent, GpuWork, OpCall
from kernel_compass.records.workload import Traffic

OWN_SHARE = 0.8
"""A kernel stands for its operator from this share of the operator's GPU time on."""


@dataclass(frozen=True)
class SeenKernel:
    """One kernel, not yet diagnosed."""

    profile: KernelProfile
    seen: KernelTimeline
    traffics: tuple[tuple[Traffic, int], ...] = ()
    """Of its operators, with how many launches each; empty unless it is known for all."""

    @property
    def compulsory_bytes(self) -> float | None:
        """What a launch must move at least, mean over the launches."""
        return self._mean([traffic.total_bytes for traffic, _ in self.traffics])

    @property
    def flops(self) -> float | None:
        """Operations of a launch, mean over the launches."""
        return self._mean([traffic.flops for traffic, _ in self.traffics])

    def _mean(self, values: Sequence[int]) -> float | None:
        counts = [count for _, count in self.traffics]
        if not counts:
            return None
        return sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts)


def seen_kernels(
    events: Sequence[GpuEvent],
    before: Sequence[Before],
    runs: Runs,
    spans_us: Mapping[int, float],
    delays: Sequence[float | None],
) -> list[SeenKernel]:
    """The kernels in order of first appearance.

    Args:
        events: in order of their start.
        before: for each of them, what came before it in its stream.
        runs: the launch-bound runs.
        spans_us: each GPU's span.
        delays: for each event, from the end of the launching call to its start.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    op_us: dict[int, float] = {}
    for at, event in enumerate(events):
        if event.work is GpuWork.KERNEL:
            key = (event.device, event.name, event.shape.grid, event.shape.block)
            groups.setdefault(key, []).append(at)
            if event.op_id is not None:
                op_us[event.op_id] = op_us.get(event.op_id, 0.0) + event.duration_us
    return [
        _kernel(members, events, before, runs, spans_us, op_us, delays)
        for members in groups.values()
    ]


def _kernel(
    members: Sequence[int],
    events: Sequence[GpuEvent],
    before: Sequence[Before],
    runs: Runs,
    spans_us: Mapping[int, float],
    op_us: Mapping[int, float],
    delays: Sequence[float | None],
) -> SeenKernel:
    launches = [events[at] for at in members]
    first = launches[0]
    times = [event.duration_us for event in launches]
    total = sum(times)
    span = spans_us[first.device]
    op, traffics = _operators(launches, op_us)
    profile = KernelProfile(
        name=first.name,
        grid=first.shape.grid,
        block=first.shape.block,
        device=first.device,
        launches=len(launches),
        duration_stats=DurationStats(
            mean=total / len(times),
            median=median(times),
            min=min(times),
            max=max(times),
            total=total,
        ),
        metrics=_metrics(launches),
    )
    seen = KernelTimeline(
        share_of_span=total / span if span > 0 else None,
        gap_before_us=_median([before[at].own_gap_us for at in members]),
        late_us=_median([before[at].own_late_us for at in members]),
        launch_delay_us=_median([delays[at] for at in members]),
        launches_in_graph=sum(event.in_graph for event in launches),
        launches_in_runs=sum(at in runs.members for at in members),
        op=op,
    )
    kernel = SeenKernel(profile, seen, traffics)
    moved, flops = kernel.compulsory_bytes, kernel.flops
    if moved is None or flops is None:
        return kernel
    return replace(kernel, seen=replace(seen, compulsory_bytes=round(moved), flops=round(flops)))


def op_text(op: OpCall) -> str:
    """`aten::mm [16, 4096] x [4096, 14336]`: the operator with its tensors' sizes."""
    shapes = [str(list(dims)) for dims in op.dims if dims]
    return f"{op.name} {' x '.join(shapes)}".strip()


def _operators(
    launches: Sequence[GpuEvent], op_us: Mapping[int, float]
) -> tuple[str | None, tuple[tuple[Traffic, int], ...]]:
    """The operator that launched most of them in words; and the traffic of all of them, where it
    is known of each and this kernel takes nearly all of the operators' time."""
    counts = Counter(event.op for event in launches if event.op is not None)
    if not counts:
        return None, ()
    text = op_text(counts.most_common(1)[0][0])
    if len(counts) > 1:
        text += f", and {len(counts) - 1} more of other shapes"
    calls = {event.op_id for event in launches if event.op_id is not None}
    whole = sum(op_us[call] for call in calls)
    own = sum(event.duration_us for event in launches)
    if sum(counts.values()) < len(launches) or own < OWN_SHARE * whole:
        return text, ()
    known: Counter[Traffic] = Counter()
    for op, count in counts.items():
        traffic = traffic_of(op)
        if traffic is None:
            return text, ()
        known[traffic] += count
    return text, tuple(known.items())


def _metrics(launches: Sequence[GpuEvent]) -> dict[str, float]:
    """Launch means of what the trace states of each launch."""
    counts = Counter(event.shape for event in launches)
    values: dict[str, list[tuple[float, int]]] = {}
    for shape, count in counts.items():
        for key, value in shape.metrics:
            values.setdefault(key, []).append((value, count))
    return {
        key: sum(value * count for value, count in pairs) / sum(count for _, count in pairs)
        for key, pairs in values.items()
    }


def _median(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return median(there) if there else None
