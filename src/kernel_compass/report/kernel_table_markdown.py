"""The markdown output of a kernel table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_compass.records.kernel_table import KernelTable
from kernel_compass.report import kernel_table as words
from kernel_compass.report.formats import Style
from kernel_compass.report.markdown import escape


def write(table: KernelTable, _style: Style) -> str:
    """A section a product and regime."""
    return "\n".join(_lines(table)) + "\n"


def _lines(table: KernelTable) -> Iterator[str]:
    yield escape(words.title(table))
    for group in words.groups(table):
        columns = words.columns_of(group)
        yield from ("", f"### {escape(group.title)}", "")
        rows = [[column.cell(row) for column in columns] for row in group.rows]
        yield from _table([c.head for c in columns], rows)
    if total := words.totals(table):
        yield from ("", "### both products, one kernel for both", "")
        yield from _table(words.TOTAL_HEADS, list(map(words.total_cells, total)))
    for text in (*words.failures(table), *words.doubts(table.rows)):
        yield from ("", f"**{escape(text)}**")
    yield ""
    yield from (f"- {escape(text)}" for text in words.remarks(table))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    escaped = [[escape(cell) for cell in row] for row in rows]
    for line in (heads, ["---"] * len(heads), *escaped):
        yield "| " + " | ".join(line) + " |"
