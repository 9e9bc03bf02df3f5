"""A timeline's findings in sentences: how busy the GPU was, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_compass.records.report import Report
from kernel_compass.records.timeline import Behind, DeviceUse, Gap, LaunchRun, TimelineSummary
from kernel_compass.report.leading import leading
from kernel_compass.report.names import short_names
from kernel_compass.report.phrases import count_text, plain, share_text
from kernel_compass.units import bytes_text, duration_text

RUNS_SHOWN = 4
GAPS_SHOWN = 3
OTHERS_SHOWN = 3
CALLS_SHOWN = 3
NAME_WIDTH = 40
NO_COUNTERS = (
    "were read: launches and gaps are certain, what bounds a kernel is not, and no confidence is "
    "over 0.65. `kernel-compass profile` reads them where the driver permits"
)
"""The limit of every timeline, said once."""


def timeline_texts(report: Report) -> list[tuple[str, str]]:
    """Each finding with the words it begins with; empty where there is no timeline."""
    found = report.timeline
    if found is None:
        return []
    names = _names(report, found)
    return [
        *_use(found),
        *_behind(found),
        *_calls(found),
        *(("launch-bound run", _run(run, names)) for run in found.runs[:RUNS_SHOWN]),
        *_more_runs(found),
        *(("gap", _gap(gap, names)) for gap in found.largest_gaps[:GAPS_SHOWN]),
        *_others(found),
        ("no counters", NO_COUNTERS),
    ]


def _use(found: TimelineSummary) -> Iterator[tuple[str, str]]:
    many = len(found.devices) > 1
    for use in found.devices:
        yield f"GPU {use.device}" if many else "GPU", _busy(use)
    if found.steps:
        yield "steps", f"{found.steps:,}, median {duration_text(found.step_us)}"


def _busy(use: DeviceUse) -> str:
    text = f"busy {duration_text(use.busy_us)} of {duration_text(use.span_us)}"
    if use.busy_share is not None:
        text += f" ({share_text(use.busy_share)})"
    idle = f"idle {duration_text(use.idle_us)} in {count_text(use.gaps, 'gap')}"
    overlap = use.kernel_us + use.copy_us - use.busy_us
    if overlap > 0.01 * use.busy_us:
        return f"{text}, {idle}; {duration_text(overlap)} of its work overlapped"
    return f"{text}, {idle}"


def _behind(found: TimelineSummary) -> Iterator[tuple[str, str]]:
    late = sum(use.late_us or 0.0 for use in found.devices)
    idle = sum(use.idle_us for use in found.devices)
    share = (
        f"{duration_text(late)} of {duration_text(idle)} idle ({share_text(late / (idle or 1))})"
    )
    words = {
        Behind.CPU: f"behind: {share} passed before the next launch was handed over",
        Behind.GPU: _ahead(found, idle, share),
        Behind.NEITHER: f"not behind: only {share} passed before the next launch was handed over; "
        "the rest is dependencies and what starting a kernel costs",
        Behind.UNKNOWN: "unknown whether it is behind: no launch can be compared with its call",
    }
    text = words[found.behind]
    if found.launch_delay_us == 0:
        text += "; a launch starts before its call returns (median)"
    elif found.launch_delay_us is not None:
        text += f"; a launch starts {duration_text(found.launch_delay_us)} after its call (median)"
    yield "CPU", text


def _ahead(found: TimelineSummary, idle_us: float, share: str) -> str:
    """The idle share, and how much of what idle time there is comes of the CPU."""
    span = sum(use.span_us for use in found.devices)
    late = sum(use.late_us or 0.0 for use in found.devices)
    how = "mostly ahead" if 0 < idle_us <= 2.0 * late else "ahead"
    text = f"{how}: the GPU idles {share_text(idle_us / span if span > 0 else 0.0)} of the span"
    known = any(use.late_us is not None for use in found.devices)
    if not known or idle_us <= 0:
        return text
    return f"{text}; {share} passed before the next launch was handed over"


def _calls(found: TimelineSummary) -> Iterator[tuple[str, str]]:
    calls = [
        f"{plain(use.name)} {use.calls:,} x {duration_text(use.median_us)}"
        for use in found.calls[:CALLS_SHOWN]
    ]
    if calls:
        yield "launching calls", f"{', '.join(calls)} of CPU time"
    if found.graph_launches:
        replays = "replay" if found.graph_launches == 1 else "replays"
        kernels = count_text(found.graph_kernels, "event")
        yield "CUDA graphs", f"{found.graph_launches:,} {replays} ran {kernels}"


def _run(run: LaunchRun, names: dict[str, str]) -> str:
    times = f", {run.repeats:,} times" if run.repeats > 1 else ""
    inside = " inside a CUDA graph" if run.in_graph else ""
    return (
        f"of {count_text(run.kernels, 'kernel')}{inside} from {names[run.first]} to "
        f"{names[run.last]}{times}: busy {duration_text(run.busy_us)} of "
        f"{duration_text(run.span_us)}"
    )


def _more_runs(found: TimelineSummary) -> Iterator[tuple[str, str]]:
    if len(found.runs) > RUNS_SHOWN:
        yield (
            "all such runs",
            f"busy {duration_text(found.runs_busy_us)} of {duration_text(found.runs_span_us)}",
        )


def _gap(gap: Gap, names: dict[str, str]) -> str:
    late = ""
    if gap.late_us is not None:
        late = f", {duration_text(gap.late_us)} of it before the launch was handed over"
    return (
        f"{duration_text(gap.duration_us)} between {names[gap.before]} and {names[gap.after]}, "
        f"{duration_text(gap.start_us)} after the start{late}"
    )


def _others(found: TimelineSummary) -> Iterator[tuple[str, str]]:
    for work in found.other_work[:OTHERS_SHOWN]:
        size = f", {bytes_text(work.bytes)}" if work.bytes is not None else ""
        yield plain(work.name), f"{work.count:,} x, {duration_text(work.total_us)} in all{size}"


def _names(report: Report, found: TimelineSummary) -> dict[str, str]:
    """Short names of all kernels that are named or shown; what is no kernel keeps its own."""
    others = [name for gap in found.largest_gaps for name in (gap.before, gap.after)]
    others += [name for run in found.runs for name in (run.first, run.last)]
    wanted = {item.kernel.name for item in leading(report).kernels} | set(others)
    unique = {
        item.kernel.name: item.kernel for item in report.kernels if item.kernel.name in wanted
    }
    short = short_names(list(unique.values()), NAME_WIDTH)
    names = dict(zip(unique, map(plain, short), strict=True))
    return {name: plain(name) for name in others} | names
