"""The terminal output of a kernel table: a block a product and regime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill

from kernel_compass.records.kernel_table import KernelRow, KernelTable
from kernel_compass.report import kernel_table as words
from kernel_compass.report.formats import Style
from kernel_compass.report.phrases import plain
from kernel_compass.report.sparks import spark
from kernel_compass.units import MISSING

_GAP = "  "
MIN_WIDTH = 60
_BOLD, _DIM, _YELLOW, _CYAN = "1", "2", "33", "36"
LEAST_SPARK = 3
"""A curve has at least so many points."""


def write(table: KernelTable, style: Style) -> str:
    """The table, laid out for the style's width."""
    width = max(style.width, MIN_WIDTH)
    lines = [fill(words.title(table), width, subsequent_indent=_GAP)]
    for group in words.groups(table):
        lines += ["", _paint(group.title, _BOLD, style.color)]
        lines += _block(group, width, style.color)
        lines += _curves(group, width, style.color)
    if total := words.totals(table):
        lines += ["", _paint("both products, one kernel for both", _BOLD, style.color)]
        cells = [list(words.TOTAL_HEADS), *map(words.total_cells, total)]
        left = [head in ("regime", "format", "kernel") for head in words.TOTAL_HEADS]
        lines += _aligned(cells, left, style.color)
    for text in (*words.failures(table), *words.doubts(table.rows)):
        lines += [
            "",
            _paint(fill(f"! {text}", width, subsequent_indent=_GAP), _YELLOW, style.color),
        ]
    lines.append("")
    for text in words.remarks(table):
        lines.append(fill(text, width, subsequent_indent=_GAP))
    return "\n".join(lines) + "\n"


def _block(group: words.Group, width: int, color: bool) -> list[str]:
    columns = words.columns_of(group)
    while columns:
        cells = [[c.head for c in columns], *([c.cell(r) for c in columns] for r in group.rows)]
        optional = [c for c in columns if c.priority]
        if _width(cells) <= width or not optional:
            break
        columns.remove(max(optional, key=lambda c: c.priority))
    return _aligned(cells, [c.left for c in columns], color)


def _curves(group: words.Group, width: int, color: bool) -> Iterator[str]:
    """Over the widths of a sweep: how many times faster than bf16 each kernel is."""
    widths = sorted({row.workload.columns for row in group.rows})
    if len(widths) < LEAST_SPARK:
        return
    curves: dict[tuple[int, str, str], dict[int, KernelRow]] = {}
    for row in group.rows:
        if row.speedup is not None:
            key = (row.workload.tokens, row.format.name, row.implementation or MISSING)
            curves.setdefault(key, {})[row.workload.columns] = row
    if not curves:
        return
    top = max(row.speedup or 0.0 for curve in curves.values() for row in curve.values())
    yield _paint(f"x bf16 over N = {widths[0]} ... {widths[-1]}, from 0 to {top:.2f}", _DIM, color)
    for (tokens, number_format, kernel), curve in curves.items():
        values = [curve[n].speedup if n in curve else None for n in widths]
        known = [value for value in values if value is not None]
        text = f"M={tokens} {number_format} {plain(kernel)}"
        ends = f"{min(known):.2f} to {max(known):.2f}"
        line = f"{_GAP}{_paint(spark(values, top), _CYAN, color)}{_GAP}{text}: {ends}"
        yield line[: width + (9 if color else 0)]


def _aligned(cells: Sequence[Sequence[str]], left: Sequence[bool], color: bool) -> list[str]:
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for index, row in enumerate(cells):
        parts = [
            cell.ljust(size) if to_left else cell.rjust(size)
            for cell, size, to_left in zip(row, sizes, left, strict=True)
        ]
        line = _GAP.join(parts).rstrip()
        lines.append(_paint(line, _DIM, color) if index == 0 else line)
    return lines


def _width(cells: Sequence[Sequence[str]]) -> int:
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return sum(sizes) + len(_GAP) * (len(sizes) - 1)


def _paint(text: str, code: str, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color else text
