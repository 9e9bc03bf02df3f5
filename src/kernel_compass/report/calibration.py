"""A calibration for people: in the terminal, and as markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from kernel_compass.codec.calibration_json import encode
from kernel_compass.records.calibration import Calibration
from kernel_compass.report import calibration_view as view
from kernel_compass.report.formats import Format, Style
from kernel_compass.report.markdown import escape
from kernel_compass.report.phrases import plain

_GAP = "  "
_NARROW = 96
"""Below this the intervals have no column of their own."""
_BOLD, _DIM, _YELLOW, _CYAN = "1", "2", "33", "36"


def render_calibration(
    calibration: Calibration, format: Format, style: Style, place: str = ""
) -> str:
    """A calibration in a format; CSV is none of them.

    Args:
        calibration: what is shown.
        format: terminal, markdown or json.
        style: width and colour, for the terminal.
        place: where it is kept, in words; not part of JSON.

    Raises:
        ValueError: another format.
    """
    if format is Format.JSON:
        return encode(calibration).decode()
    if format is Format.MARKDOWN:
        return "\n".join(_markdown(calibration, place)) + "\n"
    if format is Format.TERMINAL:
        return "\n".join(_terminal(calibration, style, place)) + "\n"
    raise ValueError(f"a calibration has no {format} form")


def _terminal(calibration: Calibration, style: Style, place: str) -> Iterator[str]:
    paint = _painter(style.color)
    width = max(style.width, 60)
    name, device, how = view.heading_texts(calibration)
    yield paint(name, _BOLD)
    yield from wrap(device, width)
    yield from wrap(how, width)
    yield from wrap(plain(place), width, subsequent_indent=_GAP) if place else ()
    for note in calibration.notes:
        for line in wrap(f"! {plain(note)}", width, subsequent_indent=_GAP):
            yield paint(line, _YELLOW)
    yield ""
    yield from _numbers(calibration, width, style.color)
    for curve in calibration.curves:
        if curve.points:
            yield ""
            head = view.curve_name(curve)
            first, *more = wrap(view.spark_caption(curve), width - len(head) - len(_GAP))
            yield f"{paint(head, _BOLD)}{_GAP}{first}"
            yield from (" " * len(head) + _GAP + line for line in more)
            yield from (paint(line, _CYAN) for line in wrap(view.spark_text(curve), width))
    table = view.curve_table(calibration)
    if table is not None:
        yield ""
        yield from _columns(table, width, style.color)


def _numbers(calibration: Calibration, width: int, color: bool) -> Iterator[str]:
    """Name, value, interval and basis in columns; why, where a number is absent."""
    paint = _painter(color)
    rows = list(view.rows(calibration))
    sizes = [max(len(getattr(r, f)) for r in rows) for f in ("name", "value", "interval")]
    narrow = width < _NARROW
    for row in rows:
        head = _GAP.join((row.name.ljust(sizes[0]), row.value.rjust(sizes[1])))
        head += "" if narrow else _GAP + row.interval.ljust(sizes[2])
        why = f": {row.source}" if row.absent else ""
        beside = f", {row.interval}" if narrow and row.interval else ""
        lines = wrap(row.basis + why + beside, max(width - len(head) - len(_GAP), 12))
        yield f"{head}{_GAP}{paint(lines[0], _DIM)}"
        for line in lines[1:]:
            yield " " * len(head) + _GAP + paint(line, _DIM)


def _columns(table: view.CurveTable, width: int, color: bool) -> Iterator[str]:
    """The table, in as many pieces as its columns need, each with the working sets in front."""
    paint = _painter(color)
    cells = [table.heads, *table.rows]
    sizes = [max(len(row[i]) for row in cells) for i in range(len(table.heads))]
    for piece in _pieces(sizes, width):
        if piece[1] != 1:
            yield ""
        for i, row in enumerate(cells):
            line = _GAP.join(row[j].rjust(sizes[j]) for j in piece)
            yield paint(line, _BOLD) if i == 0 else line


def _pieces(sizes: Sequence[int], width: int) -> list[list[int]]:
    """Column numbers that fit beside the first; a curve's two stay together."""
    pieces = [[0]]
    for i in range(1, len(sizes), 2):
        wanted = [*pieces[-1], i, i + 1]
        room = sum(sizes[j] + len(_GAP) for j in wanted) - len(_GAP)
        if room > width and len(pieces[-1]) > 1:
            pieces.append([0, i, i + 1])
        else:
            pieces[-1] = wanted
    return pieces


def _markdown(calibration: Calibration, place: str) -> Iterator[str]:
    name, device, how = view.heading_texts(calibration)
    yield f"## {escape(name)}"
    yield ""
    yield f"{escape(device)}; {escape(how)}."
    yield from ("", f"{escape(place)}.") if place else ()
    for note in calibration.notes:
        yield from ("", f"> {escape(note)}")
    yield from ("", "| what | value | interval | basis | source |", "|:--|--:|:--|:--|:--|")
    for row in view.rows(calibration):
        cells = (row.name, row.value, row.interval, row.basis, row.source)
        yield f"| {' | '.join(map(escape, cells))} |"
    table = view.curve_table(calibration)
    if table is None:
        return
    yield ""
    for curve in calibration.curves:
        if curve.points:
            yield f"- **{view.curve_name(curve)}**: {view.spark_caption(curve)} "
            yield f"(`{view.spark_text(curve)}`); {escape(curve.source)}"
    yield from ("", f"| {' | '.join(table.heads)} |", f"|{'--:|' * len(table.heads)}")
    for cells_of_row in table.rows:
        yield f"| {' | '.join(cells_of_row)} |"


def _painter(color: bool) -> Callable[[str, str], str]:
    """A function that wraps text in an ANSI style, or leaves it as it is."""

    def paint(text: str, ansi: str) -> str:
        return f"\x1b[{ansi}m{text}\x1b[0m" if color and text else text

    return paint
