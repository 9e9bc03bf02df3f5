"""A trace -> one report: kernels grouped and diagnosed, and the program's use of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.timeline_calls import (
    behind,
    call_uses,
    clock_skew,
    launch_delays,
    other_work,
)
from kernel_compass.analysis.timeline_diagnosis import Floor, diagnose_seen
from kernel_compass.analysis.timeline_groups import SeenKernel, seen_kernels
from kernel_compass.analysis.timeline_runs import TYPICAL, FixedCost, Runs, launch_runs
from kernel_compass.analysis.timeline_spans import device_uses, gaps_before, stream_uses
from kernel_compass.records.diagnosis import Diagnosis
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.records.timeline import DeviceUse, Gap, StreamUse, TimelineSummary
from kernel_compass.records.trace import GpuEvent, GpuWork, Trace
from kernel_compass.units import duration_text

OVERLAP_US = 1.0
"""Overlap in one stream that rounding explains, for each of its events."""
JUMP_US = 10e6
"""A gap this long that is most of the span may be a clock that jumped."""
OVERHEAD_SHARE = 0.01


def report_timeline(
    trace: Trace,
    label: str | None = None,
    ceilings: Ceilings | None = None,
    floor: Floor | None = None,
    fixed: FixedCost = TYPICAL,
) -> Report:
    """The report of one process's timeline. Pure.

    Args:
        trace: at least one GPU event.
        label: the title; by default the trace's own name.
        ceilings: what the machine reaches, from its calibration.
        floor: the least time of an operator, for the headroom.
        fixed: what a launch costs on its GPU.
    """
    skew = clock_skew(trace.events)
    before = gaps_before(trace.events, linked=skew is None)
    delays = launch_delays(trace.events) if skew is None else [None] * len(trace.events)
    runs = launch_runs(trace.events, before, fixed)
    uses, gaps = device_uses(trace.events, linked=skew is None)
    streams = stream_uses(trace.events)
    spans = {use.device: use.span_us for use in uses}
    seen = seen_kernels(trace.events, before, runs, spans, delays)
    sm_count = trace.device.sm_count if trace.device else None
    total = sum(kernel.profile.duration_us or 0.0 for kernel in seen)
    judged = partial(diagnose_seen, sm_count=sm_count, ceilings=ceilings, floor=floor, fixed=fixed)
    kernels = [_row(kernel, total, judged(kernel)) for kernel in seen]
    name = f"{label}, {trace.name}" if label and trace.name else label or trace.name
    return Report(
        label=name,
        device=trace.device,
        sources=(trace.source,),
        kernels=tuple(sorted(kernels, key=lambda row: -(row.share_of_time or 0.0))),
        warnings=(
            *trace.warnings,
            *([skew] if skew else ()),
            *_warnings(trace, uses, streams, gaps),
            *_without_operators(trace.events),
        ),
        timeline=_summary(trace, uses, streams, gaps, runs, delays),
    )


def _row(kernel: SeenKernel, total_us: float, diagnosis: Diagnosis) -> ReportKernel:
    profile = replace(kernel.profile, diagnosis=diagnosis)
    share = (profile.duration_us or 0.0) / total_us if total_us > 0 else None
    return ReportKernel(profile, share, timeline=kernel.seen)


def _summary(
    trace: Trace,
    uses: tuple[DeviceUse, ...],
    streams: tuple[StreamUse, ...],
    gaps: tuple[Gap, ...],
    runs: Runs,
    delays: Sequence[float | None],
) -> TimelineSummary:
    events = trace.events
    known = [delay for delay in delays if delay is not None]
    end = max(event.end_us for event in events)
    return TimelineSummary(
        span_us=end - events[0].start_us,
        devices=uses,
        streams=streams,
        behind=behind(uses, any(event.call is not None for event in events)),
        launch_delay_us=median(known) if known else None,
        calls=call_uses(trace.calls),
        graph_launches=_graph_launches(events),
        graph_kernels=sum(event.in_graph for event in events),
        runs=runs.runs,
        runs_span_us=runs.span_us,
        runs_busy_us=runs.busy_us,
        largest_gaps=gaps,
        other_work=other_work(events),
        steps=len(trace.steps_us),
        step_us=median(trace.steps_us) if trace.steps_us else None,
    )


def _graph_launches(events: Sequence[GpuEvent]) -> int:
    """Calls of graph launches that ran something."""
    return len({e.call.start_us for e in events if e.in_graph and e.call is not None})


def _without_operators(events: Sequence[GpuEvent]) -> Iterator[str]:
    """Why nothing is estimated for the kernels of a graph."""
    kernels = [event for event in events if event.work is GpuWork.KERNEL]
    inside = sum(event.in_graph and event.op is None for event in kernels)
    if inside:
        yield (
            f"{inside:,} of {len(kernels):,} kernel launches are replayed by CUDA graphs: a trace "
            "names no operators for them, so there are no estimates and no headroom; a trace of "
            "the same program without graphs has them."
        )


def _warnings(
    trace: Trace,
    uses: Sequence[DeviceUse],
    streams: Sequence[StreamUse],
    gaps: Sequence[Gap],
) -> Iterator[str]:
    for use in streams:
        if use.overlap_us > OVERLAP_US * use.events:
            yield (
                f"kernels of stream {use.stream} on GPU {use.device} overlap, "
                f"{duration_text(use.overlap_us)} in all: branches of a CUDA graph, programmatic "
                "dependent launches, or two traces in one; busy time counts it once."
            )
    span = sum(use.span_us for use in uses)
    for gap in gaps:
        if gap.duration_us > JUMP_US and gap.duration_us > 0.5 * span:
            yield (
                f"GPU {gap.device} has a gap of {duration_text(gap.duration_us)} that is most of "
                "the trace: a clock that jumped, or a program that waited; shares of the span say "
                "little."
            )
    if trace.overhead_us > OVERHEAD_SHARE * span > 0:
        yield (
            f"the profiler says it took {duration_text(trace.overhead_us)} of CPU time itself: "
            "gaps are longer than without it."
        )
