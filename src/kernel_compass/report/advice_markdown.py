"""The markdown output: a table a workload and regime, with the reasons under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_compass.records.advice import Advice, RegimeAdvice
from kernel_compass.report import advice as words
from kernel_compass.report.formats import Style
from kernel_compass.report.markdown import escape


def write(advice: Advice, _style: Style) -> str:
    """Headings, tables, reasons."""
    return "\n".join(_lines(advice)) + "\n"


def _lines(advice: Advice) -> Iterator[str]:
    yield f"## {escape(words.title(advice))}"
    yield ""
    if advice.budget_pct is not None:
        yield f"{escape(words.budget_text(advice))}."
        yield ""
    for item in advice.workloads:
        yield f"### {escape(words.workload_title(item))}"
        yield ""
        if item.assumption:
            yield f"{escape(item.assumption)}."
            yield ""
        for regime in item.regimes:
            yield from _regime(regime, advice.budget_pct)
    for text in words.totals_texts(advice):
        yield f"- {escape(text)}"
    for text in (*advice.notes, *words.LEGEND, words.W8A8_NOTE):
        yield f"- {escape(text)}"


def _regime(regime: RegimeAdvice, budget_pct: float | None) -> Iterator[str]:
    yield f"**{escape(regime.regime.value)}**"
    yield ""
    yield _row(words.FORMAT_HEADS)
    yield _row([":--", "--:", ":--", "--:", "--:", "--:", ":--", ":--"])
    for row in regime.formats:
        yield _row([escape(cell) for cell in words.format_cells(row, budget_pct)])
    yield ""
    for row in regime.formats:
        if row.reason:
            yield f"- {row.precision.value}: {escape(row.reason)}"
    for note in words.floor_notes(regime.formats):
        yield f"- {escape(note)}"
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
