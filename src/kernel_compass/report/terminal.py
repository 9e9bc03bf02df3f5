"""The terminal output: kernels ranked by share of time, each with its limiter and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from kernel_compass.records.diagnosis import Diagnosis
from kernel_compass.records.profile import Source
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.report import phrases, summary
from kernel_compass.report.formats import Style
from kernel_compass.report.leading import leading, rest_text
from kernel_compass.report.paragraph import Paragraph
from kernel_compass.report.terminal_table import LIMITER_STYLE, Table, regime_rows
from kernel_compass.report.timeline_text import timeline_texts

MIN_WIDTH = 60
EVIDENCE_SHOWN = 3
ADVICE_SHOWN = 2
"""How many of each a kernel shows; the other formats show all."""


def write(reports: Sequence[Report], style: Style) -> str:
    """The reports one after the other."""
    stream = StringIO()
    console = Console(
        file=stream,
        width=max(style.width, MIN_WIDTH),
        force_terminal=style.color,
        color_system="standard" if style.color else None,
        no_color=not style.color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},
    )
    for i, report in enumerate(reports):
        if i:
            console.print()
        for part in _parts(report, console.width):
            console.print(part)
    text = stream.getvalue()
    return "\n".join(line.rstrip() for line in text.split("\n")) if not style.color else text


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield from _header(report)
    yield Text()
    if report.timeline is not None:
        for head, words in timeline_texts(report):
            yield Paragraph(Text.assemble((head, "bold"), f" {words}"), 0, 2)
        yield Text()
    if report.kernels:
        yield from _kernels(leading(report), width)
        if rest := rest_text(report):
            yield Paragraph(Text(rest, style="dim"), 0, 2)
        yield Text()
    yield from _footer(report)


def _header(report: Report) -> Iterator[RenderableType]:
    yield Text(phrases.plain(report.label or "") or "kernel-compass diagnosis", style="bold")
    machine = (phrases.device_text(report.device), phrases.calibration_text(report))
    yield Text("; ".join(filter(None, machine)))
    names = [phrases.regime_text(source.regime) for source in report.sources]
    room = max(map(cell_len, names), default=0)
    for source, name in zip(report.sources, names, strict=True):
        yield _source(source, name.ljust(room))
    for warning in report.warnings:
        yield Paragraph(Text(f"! {phrases.plain(warning)}", style="yellow"), 0, 2)


def _source(source: Source, name: str) -> RenderableType:
    text = Text.assemble((name, "bold"), "  ", phrases.source_name(source))
    text.append(f"  {phrases.source_text(source)}", style="dim")
    return Paragraph(text, 0, len(name) + 2)


def _kernels(report: Report, width: int) -> Iterator[RenderableType]:
    table = Table(report, width)
    yield table.header()
    yield table.rule()
    regimes = summary.regimes_of(report)
    told: set[tuple[str, str]] = set()
    advised: dict[tuple[str, ...], int] = {}
    for rank, item in enumerate(report.kernels, start=1):
        yield table.row(rank)
        diagnosis = item.kernel.diagnosis
        if diagnosis is None:
            continue
        for text, hang in _why(item, diagnosis, table.compact, told):
            yield Paragraph(text, table.indent, hang)
        if regimes and item.regimes is not None:
            yield Padding(regime_rows(item, regimes, table.compact), (0, 0, 0, table.indent))
        for text, hang in _what_helps(diagnosis, rank, advised):
            yield Paragraph(text, table.indent, hang)


def _why(
    item: ReportKernel, diagnosis: Diagnosis, compact: bool, told: set[tuple[str, str]]
) -> Iterator[tuple[Text, int]]:
    """Evidence (in narrow terminals confidence and headroom too), each with its indent.

    What a number means is told once; kernels further down show the number alone.
    """
    parts = [item.timeline.op] if item.timeline and item.timeline.op else []
    for evidence in phrases.leading_evidence(diagnosis, EVIDENCE_SHOWN):
        meaning = (evidence.metric, evidence.meaning)
        parts.append(phrases.evidence_text(evidence, explained=meaning not in told))
        told.add(meaning)
    if compact:
        pipe = f"{diagnosis.pipe} pipe, " if diagnosis.pipe else ""
        parts.insert(0, f"{pipe}confidence {diagnosis.confidence:.2f}")
    if item.kernel.duration_stats is None:
        parts.append("duration not in the capture")
    if compact and (headroom := phrases.headroom_text(diagnosis)):
        parts.append(headroom)
    if parts:
        yield Text(phrases.plain("; ".join(parts)), style="dim"), 0


def _what_helps(
    diagnosis: Diagnosis, rank: int, advised: dict[tuple[str, ...], int]
) -> Iterator[tuple[Text, int]]:
    """Flags and advice; what was said in the same words for a kernel above is referred to."""
    flags = Text(", ".join(phrases.flag_texts(diagnosis)), style="yellow")
    advice = tuple(phrases.plain(text).rstrip(".") for text in diagnosis.advice[:ADVICE_SHOWN])
    words = [f"as for #{advised[advice]}"] if advice in advised else list(advice)
    advised.setdefault(advice, rank)
    arrow = Text(f"→ {'; '.join(words)}")
    if flags and words and not words[0].startswith("as for"):
        yield flags, 0
        yield arrow, 2
    elif flags and words:
        yield Text("  ").join((flags, arrow)), 2
    elif flags or words:
        yield flags or arrow, 2


def _footer(report: Report) -> Iterator[RenderableType]:
    yield Text(summary.total_text(report), style="bold")
    if not report.kernels:
        return
    totals = summary.limiter_totals(report)
    for total, sentence in zip(totals, summary.dominating_texts(report), strict=False):
        name = total.limiter.value
        yield Paragraph(
            Text.assemble((name, LIMITER_STYLE[total.limiter]), sentence[len(name) :]), 0, 2
        )
    if also := summary.also_text(report):
        yield Paragraph(Text(also), 0, 2)
    for sentence in (*summary.regime_cost_texts(report), summary.winnable_text(report)):
        if sentence:
            yield Paragraph(Text(sentence), 0, 2)
