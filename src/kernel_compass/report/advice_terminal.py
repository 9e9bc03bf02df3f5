"""The terminal output: a few workloads in full, a model's many as one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

from kernel_compass.records.advice import Advice, FormatAdvice, Verdict, WorkloadAdvice
from kernel_compass.report import advice as words
from kernel_compass.report.formats import Style
from kernel_compass.report.phrases import count_text, plain
from kernel_compass.units import MISSING, duration_text

FULL_UP_TO = 3
"""So many workloads are shown in full."""
MIN_WIDTH = 60
_GAP = "  "
_COLORS: Mapping[Verdict, str] = {
    Verdict.PAYS: "32",
    Verdict.CANNOT_PAY: "31",
    Verdict.CANNOT_TELL: "33",
}
_MARKS: Mapping[Verdict, str] = {
    Verdict.PAYS: "+",
    Verdict.CANNOT_PAY: "-",
    Verdict.CANNOT_TELL: "?",
}
_MARKS_EXPLAINED = (
    "+ pays, - cannot pay, ? cannot tell without a probe; the number is the most it can win"
)


def write(advice: Advice, style: Style) -> str:
    """The advice, laid out for the style's width."""
    width = max(style.width, MIN_WIDTH)
    lines = [fill(words.title(advice), width)]
    if advice.budget_pct is not None:
        lines.append(f"error budget {advice.budget_pct:g} %")
    if len(advice.workloads) <= FULL_UP_TO:
        lines += _in_full(advice, width, style.color)
    else:
        lines += _in_brief(advice, width, style.color)
    lines.append("")
    for text in (*map(plain, advice.notes), *words.LEGEND, words.W8A8_NOTE):
        lines.append(fill(text, width, subsequent_indent=_GAP))
    return "\n".join(lines) + "\n"


def _in_full(advice: Advice, width: int, color: bool) -> Iterator[str]:
    for item in advice.workloads:
        yield ""
        yield _bold(words.workload_title(item), color)
        if item.assumption:
            yield fill(f"assumed: {item.assumption}", width, subsequent_indent=_GAP)
        for regime in item.regimes:
            yield ""
            yield _bold(regime.regime.value, color)
            yield from _formats(regime.formats, width, color)


def _formats(rows: Sequence[FormatAdvice], width: int, color: bool) -> Iterator[str]:
    """The table and a reason under each row; in narrow terminals some columns go there too."""
    cells = [words.format_cells(row) for row in rows]
    table = [list(words.FORMAT_HEADS), *cells]
    narrow = _width(table) > width
    if narrow:
        table = [[row[0], *row[3:6], row[7]] for row in table]
    if _width(table) > width:
        table = [[*row[:-1], row[-1].removesuffix(_PROBE)] for row in table]
    head, *body = _aligned(table, left=(0, 4) if narrow else (0, 2, 6, 7))
    yield head
    for line, row, cell in zip(body, rows, cells, strict=True):
        yield _tinted(line, row, color)
        if narrow:
            yield _under(f"{cell[1]}, stays in L2: {cell[2]}; error {cell[6]}", width)
        if row.reason:
            yield _under(row.reason, width)


_PROBE = " without a probe"


def _width(table: Sequence[Sequence[str]]) -> int:
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    return sum(sizes) + len(_GAP) * (len(sizes) - 1)


def _under(text: str, width: int) -> str:
    return fill(text, width, initial_indent=_GAP * 2, subsequent_indent=_GAP * 2)


def _in_brief(advice: Advice, width: int, color: bool) -> Iterator[str]:
    """One line a workload and regime: bf16's estimate, and what each format could win at most."""
    for tokens in dict.fromkeys(_batch(advice)):
        items = [w for w, t in zip(advice.workloads, _batch(advice), strict=True) if t == tokens]
        for i, regime in enumerate(items[0].regimes):
            yield ""
            yield _bold(f"{count_text(tokens, 'token')}, {regime.regime.value}", color)
            rest = [f.precision.value for f in regime.formats[1:]]
            table = [["product", "shape", "layers", "bf16", *rest]]
            table += [_brief(item, i) for item in items]
            yield from (line[:width] for line in _aligned(table, left=(0, 1)))
    yield ""
    yield fill(_MARKS_EXPLAINED, width, subsequent_indent=_GAP)
    for text in words.totals_texts(advice):
        yield fill(text, width, subsequent_indent=_GAP)
    for text in dict.fromkeys(w.assumption for w in advice.workloads if w.assumption):
        yield fill(f"assumed: {text}", width, subsequent_indent=_GAP)


def _batch(advice: Advice) -> list[int]:
    """The step's tokens of every workload: experts see fewer rows each than the step has."""
    found: list[int] = []
    for item in reversed(advice.workloads):
        named_last = item.workload.name == "lm_head"
        found.append(item.workload.tokens if named_last or not found else found[-1])
    return found[::-1]


def _brief(item: WorkloadAdvice, regime: int) -> list[str]:
    baseline, *others = item.regimes[regime].formats
    time = baseline.estimate.time_us if baseline.estimate else None
    layers = MISSING if item.layers is None else str(item.layers)
    cells = [item.workload.name or "", item.workload.shape_text, layers, duration_text(time)]
    return cells + [_winnable(row) for row in others]


def _winnable(row: FormatAdvice) -> str:
    """`1.63x ?`, `over budget`."""
    if row.within_budget is False:
        return "over budget"
    mark = _MARKS[row.verdict] if row.verdict else " "
    return f"{words.at_most_text(row)} {mark}"


def _aligned(table: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """Cells padded to their columns; those in `left` to the right, the others to the left."""
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            cell.ljust(size) if i in left else cell.rjust(size)
            for i, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _tinted(line: str, row: FormatAdvice, color: bool) -> str:
    verdict = words.verdict_text(row)
    verdict = verdict if line.endswith(verdict) else verdict.removesuffix(_PROBE)
    if not color or row.verdict is None or not line.endswith(verdict):
        return line
    start = line[: len(line) - len(verdict)]
    return f"{start}\x1b[{_COLORS[row.verdict]}m{verdict}\x1b[0m"


def _bold(text: str, color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if color else text
