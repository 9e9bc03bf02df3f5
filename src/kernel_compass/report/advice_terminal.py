"""The terminal output: a few workloads in full, a model's many as one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

from kernel_compass.records.advice import Advice, FormatAdvice, Verdict, WorkloadAdvice
from kernel_compass.report import advice as words
from kernel_compass.report.fitting import fit_all
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
    "0.95-1.85?: times bf16 by the estimates, which orders what to probe, and at most; "
    "+ pays, - cannot pay, ? cannot tell without a probe"
)
_COMPACT_EXPLAINED = (
    "n: layers; shapes: MxNxK of a linear, HxMxKxN of a bmm; `_proj` is left out of names"
)
_LEAST_NAME = 10
"""Characters of a product's name below which a line of its own shows it better."""


def write(advice: Advice, style: Style) -> str:
    """The advice, laid out for the style's width."""
    width = max(style.width, MIN_WIDTH)
    lines = [fill(words.title(advice), width)]
    if advice.budget_pct is not None:
        lines.append(fill(words.budget_text(advice), width, subsequent_indent=_GAP))
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
            yield from _formats(regime.formats, advice.budget_pct, width, color)
            for note in words.floor_notes(regime.formats):
                yield fill(note, width, subsequent_indent=_GAP)


def _formats(
    rows: Sequence[FormatAdvice], budget_pct: float | None, width: int, color: bool
) -> Iterator[str]:
    """The table and a reason under each row; in narrow terminals some columns go there too."""
    cells = [words.format_cells(row, budget_pct) for row in rows]
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
            yield _under(f"{cell[1]}, fits L2: {cell[2]}; error {cell[6]}", width)
        if row.reason:
            yield _under(row.reason, width)


_PROBE = " without a probe"


def _width(table: Sequence[Sequence[str]]) -> int:
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    return sum(sizes) + len(_GAP) * (len(sizes) - 1)


def _under(text: str, width: int) -> str:
    return fill(text, width, initial_indent=_GAP * 2, subsequent_indent=_GAP * 2)


def _in_brief(advice: Advice, width: int, color: bool) -> Iterator[str]:
    """One line a workload and regime: bf16's estimate, and what each format could win."""
    compact = False
    for tokens in dict.fromkeys(_batch(advice)):
        items = [w for w, t in zip(advice.workloads, _batch(advice), strict=True) if t == tokens]
        for i, regime in enumerate(items[0].regimes):
            yield ""
            yield _bold(f"{count_text(tokens, 'token')}, {regime.regime.value}", color)
            lines = _wide(items, i)
            if max(map(len, lines)) > width:
                lines, compact = _compact(items, i, width), True
            yield from lines
    yield ""
    explained = [_MARKS_EXPLAINED, *([_COMPACT_EXPLAINED] if compact else [])]
    assumed = dict.fromkeys(w.assumption for w in advice.workloads if w.assumption)
    rows = (f for w in advice.workloads for regime in w.regimes for f in regime.formats)
    for text in (
        *explained,
        *words.totals_texts(advice),
        *(f"assumed: {text}" for text in assumed),
        *words.floor_notes(rows),
    ):
        yield fill(text, width, subsequent_indent=_GAP)


def _batch(advice: Advice) -> list[int]:
    """The step's tokens of every workload: experts see fewer rows each than the step has."""
    found: list[int] = []
    for item in reversed(advice.workloads):
        named_last = item.workload.name == "lm_head"
        found.append(item.workload.tokens if named_last or not found else found[-1])
    return found[::-1]


def _wide(items: Sequence[WorkloadAdvice], regime: int) -> list[str]:
    table = [["product", "shape", "layers", *_heads(items, regime)]]
    for item in items:
        layers = MISSING if item.layers is None else str(item.layers)
        name = plain(item.workload.name or "")
        table.append([name, item.workload.shape_text, layers, *_brief(item, regime)])
    return _aligned(table, left=(0, 1))


def _compact(items: Sequence[WorkloadAdvice], regime: int, width: int) -> list[str]:
    """Shorter words; where the names still find no room, each product on two lines."""
    table = [["product", "shape", "n", *_heads(items, regime)]]
    for item in items:
        layers = MISSING if item.layers is None else str(item.layers)
        name = plain(item.workload.name or "").removesuffix("_proj")
        sizes = item.workload.shape_text.rpartition(" ")[2]
        table.append([name, sizes, layers, *_brief(item, regime)])
    room = width - _width([row[1:] for row in table]) - len(_GAP)
    if room < _LEAST_NAME:
        numbers = _aligned([row[3:] for row in table], left=())
        heads = [_GAP.join(row[:3]) for row in table]
        return [part for h, line in zip(heads, numbers, strict=True) for part in (h, _GAP + line)]
    names = {str(i): row[0] for i, row in enumerate(table)}
    cut = fit_all(names, dict.fromkeys(names, room))
    return _aligned([[cut[str(i)], *row[1:]] for i, row in enumerate(table)], left=(0, 1))


def _heads(items: Sequence[WorkloadAdvice], regime: int) -> list[str]:
    return [row.precision.value for row in items[0].regimes[regime].formats]


def _brief(item: WorkloadAdvice, regime: int) -> list[str]:
    baseline, *others = item.regimes[regime].formats
    time = baseline.estimate.time_us if baseline.estimate else None
    return [duration_text(time), *(_winnable(row, baseline) for row in others)]


def _winnable(row: FormatAdvice, baseline: FormatAdvice) -> str:
    """`0.95-1.85?`; `> budget` where no format of this precision keeps it."""
    if row.within_budget is False:
        return "> budget"
    ratio = words.estimated_ratio(row, baseline)
    mark = _MARKS[row.verdict] if row.verdict else ""
    if row.at_most is None:
        return f"{MISSING}{mark}"
    return f"{MISSING if ratio is None else f'{ratio:.2f}'}-{row.at_most:.2f}{mark}"


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
