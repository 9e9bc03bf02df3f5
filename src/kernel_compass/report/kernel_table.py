"""A kernel table as text in any of the formats, and the words that the formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernel_compass.codec.kernel_table import encode, encode_csv
from kernel_compass.records.advice import CacheFit
from kernel_compass.records.kernel_table import BASELINE, KernelRow, KernelTable, RowStatus
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op
from kernel_compass.report.advice import FITS
from kernel_compass.report.formats import Format, Style
from kernel_compass.report.phrases import count_text, plain
from kernel_compass.units import MISSING, bytes_text, duration_text

FLOOR_LEGEND = (
    "floor: what streaming the same bytes takes (~ where extrapolated); achievable, not a bound"
)
TIME_LEGEND = (
    "time: one launch in a CUDA graph, the slope between n and 2n launches; the output was checked "
    "against float64 first",
    "headroom: time / floor; GB/s: compulsory bytes (weights, activations, outputs once) / time",
    f"x bf16: time of {BASELINE} in the same run / time",
    "error: relative Frobenius against float64 at full precision, format and kernel together; "
    "kernel's: against float64 on the dequantized operands",
    "x layers: the launch in every layer of the model",
)


@dataclass(frozen=True)
class Column:
    """One column for people."""

    head: str
    cell: Callable[[KernelRow], str]
    left: bool = False
    priority: int = 0
    """Columns of the highest go first where the terminal is narrow; 0 always stays."""


@dataclass(frozen=True)
class Group:
    """Rows of one product in one regime."""

    title: str
    regime: Regime
    rows: tuple[KernelRow, ...]


@dataclass(frozen=True)
class Total:
    """Both reconstruction products of a model by the same kernel."""

    tokens: int
    regime: Regime
    format: str
    implementation: str
    layer_us: float
    model_us: float
    baseline_us: float | None
    """`cublas_bf16`, whole model."""

    @property
    def speedup(self) -> float | None:
        """> 1 is faster."""
        return None if self.baseline_us is None else self.baseline_us / self.model_us


def render_kernel_table(table: KernelTable, kind: Format, style: Style) -> str:
    """A table as text that ends in a newline.

    Args:
        table: what is shown.
        kind: the output wanted.
        style: width and colour of the terminal output.
    """
    if kind is Format.JSON:
        return encode(table).decode("utf-8")
    if kind is Format.CSV:
        return encode_csv(table)
    if kind is Format.MARKDOWN:
        from kernel_compass.report import kernel_table_markdown

        return kernel_table_markdown.write(table, style)
    from kernel_compass.report import kernel_table_terminal

    return kernel_table_terminal.write(table, style)


def remarks(table: KernelTable) -> list[str]:
    """What to know of the numbers."""
    measured = any(row.time_us is not None for row in table.rows)
    own = [f"calibration {table.calibration}: {plain(text)}" for text in table.notes]
    legend = (FLOOR_LEGEND, *TIME_LEGEND) if measured else (FLOOR_LEGEND,)
    return [*(own if table.calibration else map(plain, table.notes)), *legend]


def title(table: KernelTable) -> str:
    """Which GPU, under what, and what floors rest on."""
    machine = next((row.environment for row in table.rows if row.environment), None)
    parts = []
    if machine is not None:
        parts.append(machine.device.name or "unknown GPU")
        versions = (
            ("driver", machine.driver),
            ("torch", machine.torch),
            ("triton", machine.triton),
        )
        parts += [f"{name} {version}" for name, version in versions if version]
        parts += [machine.date] if machine.date else []
    if table.calibration is not None:
        parts.append(f"calibration {table.calibration}")
    if table.c_eff_bytes is not None:
        parts.append(f"effective L2 {bytes_text(table.c_eff_bytes)}")
    if not any(row.status is RowStatus.MEASURED for row in table.rows):
        parts.append("nothing was measured")
    return plain(", ".join(parts))


def groups(table: KernelTable) -> list[Group]:
    """Rows with a time or a plan, by product and regime, in the order they came."""
    found: dict[tuple[object, ...], list[KernelRow]] = {}
    for row in table.rows:
        if row.status in (RowStatus.MEASURED, RowStatus.PLANNED):
            w = row.workload
            key = (row.model, w.name, w.op, w.heads, w.reduction, row.regime)
            found.setdefault(key, []).append(row)
    made = []
    for rows in found.values():
        made.append(Group(_group_title(rows), rows[0].regime, tuple(sorted(rows, key=_order))))
    return made


def columns_of(group: Group) -> list[Column]:
    """The columns in which some row has something to say."""
    varied = len({row.workload.columns for row in group.rows}) > 1
    always = {"M", "format", "weights", "floor"}
    always |= {"N"} if varied else set()
    return [
        column
        for column in _COLUMNS
        if column.head in always
        or (column.head != "N" and any(column.cell(row) != MISSING for row in group.rows))
    ]


def totals(table: KernelTable) -> list[Total]:
    """Sums over the products of a model, where one kernel has a time in all of them."""
    rows = [r for r in table.rows if r.model_us is not None]
    products = {r.workload.name for r in table.rows if r.layers is not None}
    found: dict[tuple[int, Regime, str, str], list[KernelRow]] = {}
    for row in rows:
        key = (row.workload.tokens, row.regime, row.format.name, row.implementation or MISSING)
        found.setdefault(key, []).append(row)
    return [
        Total(
            *key,
            sum(r.time_us or 0.0 for r in each),
            sum(r.model_us or 0.0 for r in each),
            _baseline(each),
        )
        for key, each in found.items()
        if len(products) > 1 and {r.workload.name for r in each} == products
    ]


def failures(table: KernelTable) -> list[str]:
    """Who has no time and why, each reason once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in table.rows:
        if row.status in (RowStatus.FAILED, RowStatus.UNSUPPORTED):
            who = f"{row.implementation or 'all'} in {row.format.name}"
            key = (row.status.value, who, row.reason or "no reason was given")
            found.setdefault(key, []).append(f"{row.workload.shape_text} {row.regime.value}")
    return [
        plain(f"{status}: {who}, {places[0]}{_more(len(places) - 1)}: {reason}")
        for (status, who, reason), places in found.items()
    ]


def doubts(rows: Iterable[KernelRow]) -> list[str]:
    """What speaks against some times, each once."""
    found: dict[tuple[str, str], int] = {}
    for row in rows:
        noun = "plan" if row.status is RowStatus.PLANNED else "time"
        for warning in row.warnings:
            found[warning, noun] = found.get((warning, noun), 0) + 1
    return [plain(f"{count_text(n, noun)}: {words}") for (words, noun), n in found.items()]


def total_cells(total: Total) -> list[str]:
    """One line of the totals."""
    return [
        str(total.tokens),
        total.regime.value,
        total.format,
        total.implementation,
        duration_text(total.layer_us),
        duration_text(total.model_us),
        MISSING if total.speedup is None else f"{total.speedup:.2f}",
    ]


TOTAL_HEADS = ("M", "regime", "format", "kernel", "a layer", "all layers", "x bf16")


def _baseline(rows: Sequence[KernelRow]) -> float | None:
    parts = [None if r.baseline_us is None else r.baseline_us * (r.layers or 0) for r in rows]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _more(count: int) -> str:
    return f" and {count} more" if count else ""


def _group_title(rows: Sequence[KernelRow]) -> str:
    w = rows[0].workload
    widths = {row.workload.columns for row in rows}
    width = str(w.columns) if len(widths) == 1 else "N"
    shape = f"M x {width} x {w.reduction}" if w.op is Op.LINEAR else ""
    shape = shape or f"{w.heads} x M x {w.reduction} x {width}"
    name = " ".join(part for part in (rows[0].model, w.name, w.op.value, shape) if part)
    layers = f", {count_text(rows[0].layers, 'layer')}" if rows[0].layers is not None else ""
    return f"{plain(name)}{layers}, {rows[0].regime.value}"


def _order(row: KernelRow) -> tuple[int, int]:
    return row.workload.tokens, row.workload.columns


def _number(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _pct(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.1f} %" if value >= 10 else f"{value:.2f} %"


def _fit(row: KernelRow) -> str:
    return MISSING if row.cache_fit is CacheFit.UNKNOWN else FITS[row.cache_fit]


def _floor(row: KernelRow) -> str:
    guessed = "~" if "extrapolated" in (row.floor_basis or "") else ""
    return guessed + duration_text(row.floor_us)


_COLUMNS = (
    Column("M", lambda r: str(r.workload.tokens)),
    Column("N", lambda r: str(r.workload.columns)),
    Column("format", lambda r: r.format.name, left=True),
    Column("kernel", lambda r: plain(r.implementation or MISSING), left=True),
    Column("weights", lambda r: bytes_text(r.weight_bytes), priority=3),
    Column("bytes", lambda r: bytes_text(r.moved_bytes), priority=6),
    Column("fits L2", _fit, left=True, priority=5),
    Column("time", lambda r: duration_text(r.time_us)),
    Column("floor", _floor),
    Column("headroom", lambda r: _ratio(r.headroom)),
    Column("x bf16", lambda r: _ratio(r.speedup)),
    Column("TFLOP/s", lambda r: _number(r.tflops), priority=2),
    Column("GB/s", lambda r: _number(r.gb_s), priority=2),
    Column("error", lambda r: _pct(r.format_error_pct)),
    Column("kernel's", lambda r: _pct(r.fidelity_error_pct), priority=4),
    Column("x layers", lambda r: duration_text(r.model_us), priority=1),
)
