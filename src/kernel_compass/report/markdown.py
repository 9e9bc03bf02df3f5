"""The markdown output: a table as GitHub shows it, then every kernel's evidence and advice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernel_compass.records.diagnosis import Diagnosis
from kernel_compass.records.profile import Regime
from kernel_compass.records.report import RegimeView, Report, ReportKernel
from kernel_compass.records.timeline import KernelTimeline
from kernel_compass.report import phrases, summary
from kernel_compass.report.formats import Style
from kernel_compass.report.leading import leading, rest_text
from kernel_compass.report.names import dim_text, short_names
from kernel_compass.report.timeline_text import timeline_texts
from kernel_compass.units import MISSING, duration_text

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~$&]|(?<![^\W_])_|_(?![^\W_]))")


def write(reports: Sequence[Report], _style: Style) -> str:
    """The reports one after the other, each under a heading of its own."""
    return "\n".join("\n".join(_lines(report)) + "\n" for report in reports)


def escape(text: str) -> str:
    """Text that markdown shows as it is, in a table cell too."""
    return _SPECIAL.sub(r"\\\1", phrases.plain(text))


def code(text: str, in_table: bool = False) -> str:
    """A code span; only in a table cell does GitHub want its pipes escaped."""
    text = phrases.plain(text)
    text = text.replace("|", "\\|") if in_table else text
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _lines(report: Report) -> Iterator[str]:
    yield f"## {escape(report.label or 'kernel-compass diagnosis')}"
    yield ""
    machine = (phrases.device_text(report.device), phrases.calibration_text(report))
    yield f"{escape('; '.join(filter(None, machine)))}."
    yield ""
    for source in report.sources:
        name, how = phrases.source_name(source), phrases.source_text(source)
        yield f"- {escape(phrases.regime_text(source.regime))}: {code(name)}, {escape(how)}"
    yield ""
    for warning in report.warnings:
        yield f"> **Warning:** {escape(warning)}"
        yield ""
    if report.timeline is not None:
        yield from (
            f"- **{escape(head)}** {escape(words)}" for head, words in timeline_texts(report)
        )
        yield ""
    shown = leading(report)
    names = short_names([item.kernel for item in shown.kernels])
    if shown.kernels:
        yield from _table(shown, names)
        yield ""
    if rest := rest_text(report):
        yield escape(rest)
        yield ""
    yield from _summary(report)
    for rank, (item, name) in enumerate(zip(shown.kernels, names, strict=True), start=1):
        yield from _details(rank, item, name)


def _table(report: Report, names: Sequence[str]) -> Iterator[str]:
    regimes = summary.regimes_of(report)
    room = summary.has_headroom(report)
    heads = ["#", "kernel", "launches", "mean", "share", "limiter", "confidence", "flags"]
    yield _row([*heads, *(["headroom"] if room else []), *(regime.value for regime in regimes)])
    aligned = ["--:", ":--", "--:", "--:", "--:", ":--", "--:", ":--", *(["--:"] if room else [])]
    yield _row([*aligned, *(":--" for _ in regimes)])
    for rank, (item, name) in enumerate(zip(report.kernels, names, strict=True), start=1):
        kernel, diagnosis = item.kernel, item.kernel.diagnosis
        known = [MISSING, MISSING, ""] if diagnosis is None else _diagnosis_cells(diagnosis)
        cells = [
            str(rank),
            code(name, in_table=True),
            f"{kernel.launches:,}",
            duration_text(kernel.avg_duration_us),
            phrases.share_text(item.share_of_time),
            *known,
            *([phrases.headroom_cell(diagnosis)] if room else []),
        ]
        yield _row([*cells, *(_regime_cell(item, regime) for regime in regimes)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _diagnosis_cells(diagnosis: Diagnosis) -> list[str]:
    return [
        escape(phrases.limiter_text(diagnosis)),
        f"{diagnosis.confidence:.2f}",
        escape(", ".join(phrases.flag_texts(diagnosis))),
    ]


def _regime_cell(item: ReportKernel, regime: Regime) -> str:
    """A kernel in one regime: `9.12 us, dram_bound, DRAM 16.0 MiB`."""
    view = (item.regimes or {}).get(regime)
    return MISSING if view is None else escape(", ".join(_regime_parts(view, short=True)))


def _regime_parts(view: RegimeView, short: bool) -> list[str]:
    mean = view.duration_stats.mean if view.duration_stats else None
    parts = [duration_text(mean), phrases.limiter_text(view.diagnosis)]
    reads = phrases.reads_text(view.metrics, short)
    return [*parts, reads] if reads else parts


def _summary(report: Report) -> Iterator[str]:
    yield f"**{escape(summary.total_text(report))}**"
    yield ""
    if not report.kernels:
        return
    sentences = [*summary.dominating_texts(report), summary.also_text(report)]
    sentences += [*summary.regime_cost_texts(report), summary.winnable_text(report)]
    for sentence in sentences:
        if sentence:
            yield f"- {escape(sentence)}"
    yield ""


def _details(rank: int, item: ReportKernel, name: str) -> Iterator[str]:
    kernel, diagnosis = item.kernel, item.kernel.diagnosis
    yield f"### {rank}. {escape(name)}"
    yield ""
    yield code(kernel.name)
    yield ""
    if kernel.grid or kernel.block:
        yield f"- grid {dim_text(kernel.grid)}, block {dim_text(kernel.block)}"
    if item.timeline is not None:
        yield from _seen(item.timeline)
    if diagnosis is not None:
        yield from _why(diagnosis)
    for regime, view in (item.regimes or {}).items():
        known = ", ".join(_regime_parts(view, short=False)) if view else "not in this capture"
        flags = ", ".join(phrases.flag_texts(view.diagnosis)) if view else ""
        yield f"- {escape(regime.value)}: {escape(known)}{escape(f'; {flags}') if flags else ''}"
    yield ""


def _seen(timeline: KernelTimeline) -> Iterator[str]:
    """What a timeline adds to a kernel."""
    if timeline.op:
        yield f"- operator: {code(timeline.op)}"
    parts = [f"{phrases.share_text(timeline.share_of_span)} of the span"]
    if timeline.launches_in_graph:
        parts.append(f"{phrases.count_text(timeline.launches_in_graph, 'launch')} in CUDA graphs")
    if timeline.launches_in_runs:
        runs = phrases.count_text(timeline.launches_in_runs, "launch")
        parts.append(f"{runs} in launch-bound runs")
    yield f"- timeline: {escape(', '.join(parts))}"


def _why(diagnosis: Diagnosis) -> Iterator[str]:
    limiter = escape(phrases.limiter_text(diagnosis))
    yield f"- **{limiter}**, confidence {diagnosis.confidence:.2f}"
    for evidence in diagnosis.evidence:
        yield f"- evidence: {escape(phrases.evidence_text(evidence))}"
    if headroom := phrases.headroom_text(diagnosis):
        yield f"- headroom: {escape(headroom)}"
    if flags := phrases.flag_texts(diagnosis):
        yield f"- flags: {escape(', '.join(flags))}"
    for advice in diagnosis.advice:
        yield f"- what would help: {escape(advice)}"
