"""Advice as text in any of the formats, and the words that the formats share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Protocol, cast

from kernel_compass.records.advice import (
    Advice,
    CacheFit,
    FloorEstimate,
    FormatAdvice,
    Verdict,
    WorkloadAdvice,
)
from kernel_compass.records.calibration import Basis
from kernel_compass.records.workload import Precision
from kernel_compass.report.formats import Format, Style
from kernel_compass.report.phrases import count_text, plain
from kernel_compass.report.render import DEFAULT_WIDTH
from kernel_compass.units import MISSING, bytes_text, duration_text, percent_text

VERDICTS: Mapping[Verdict, str] = {
    Verdict.PAYS: "pays",
    Verdict.CANNOT_PAY: "cannot pay",
    Verdict.CANNOT_TELL: "cannot tell without a probe",
}
FITS: Mapping[CacheFit, str] = {
    CacheFit.FITS: "yes",
    CacheFit.SPILLS: "no",
    CacheFit.EDGE: "on the edge",
    CacheFit.UNKNOWN: "unknown",
}
LEGEND = (
    "floor: a streaming kernel's time for the same bytes on this machine, launch included (~ where "
    "extrapolated); achievable, not a physical bound",
    "estimate: the latency model for a kernel nobody has probed, with its error band; it orders "
    "candidates and never accepts one",
    "at most: estimated bf16 time over the format's floor (in situ the larger of warm's and "
    "cold's); a bf16 kernel slower than estimated leaves more",
    "error: relative Frobenius error on Gaussian data; a guide, your tensors decide",
)
W8A8_NOTE = (
    "w8a8: the estimate includes a separate launch that quantizes the activations, the floor does "
    "not"
)


class _Writer(Protocol):
    """What every `report.advice_<format>` module offers."""

    def write(self, advice: Advice, style: Style) -> str:
        """The advice as one text that ends in a newline."""


def render_advice(
    advice: Advice, format: Format, width: int | None = None, color: bool = False
) -> str:
    """Advice as text, ending in a newline.

    Args:
        advice: what to show.
        format: the output wanted.
        width: columns of the terminal output; `None` means 100.
        color: whether the terminal output may use ANSI colours.
    """
    module = import_module(f"kernel_compass.report.advice_{format.value}")
    return cast(_Writer, module).write(advice, Style(width or DEFAULT_WIDTH, color))


def title(advice: Advice) -> str:
    """`DeepSeek-V3 over 8 GPUs on NVIDIA H200 (calibration h200), launched in a CUDA graph`."""
    what = plain(advice.model) if advice.model else "advice"
    split = f" over {advice.tp} GPUs" if advice.tp and advice.tp > 1 else ""
    device = plain(advice.device.name or "a GPU")
    launches = "CUDA-graph launches" if advice.launch_mode == "graph" else "eager launches"
    return f"{what}{split} on {device} (calibration {plain(advice.calibration)}), {launches}"


def workload_title(row: WorkloadAdvice) -> str:
    """`q_absorb, bmm 16x1x128x512, 61 layers, heads split`."""
    parts = [row.workload.name or "", row.workload.shape_text]
    if row.layers is not None:
        parts.append("1 layer" if row.layers == 1 else f"{row.layers} layers")
    if row.sharded and row.sharded != "replicated":
        parts.append(f"{row.sharded} split")
    return ", ".join(part for part in parts if part)


def floor_text(floor: FloorEstimate | None) -> str:
    """`3.84 us`, `~5.93 us` where extrapolated, `3.84-5.93 us` in situ."""
    if floor is None:
        return MISSING
    mark = "~" if floor.basis is Basis.EXTRAPOLATED else ""
    high = floor.time_us if floor.high_us is None else floor.high_us
    return f"{mark}{span_text(floor.time_us, high)}"


def estimate_text(row: FormatAdvice) -> str:
    """`4.75 us (4.10-6.20 us)`."""
    e = row.estimate
    if e is None:
        return MISSING
    return f"{duration_text(e.time_us)} ({span_text(e.low_us, e.high_us)})"


def span_text(low_us: float, high_us: float) -> str:
    """`4.10-6.20 us`, `0.95-1.20 ms`, `950 ns - 1.20 us`; one number where both read the same."""
    low, high = duration_text(low_us), duration_text(high_us)
    if low == high:
        return low
    number, unit = low.split()
    return f"{number}-{high}" if high.endswith(f" {unit}") else f"{low} - {high}"


def at_most_text(row: FormatAdvice) -> str:
    """`1.63x`."""
    return MISSING if row.at_most is None else f"{row.at_most:.2f}x"


def errors_text(row: FormatAdvice, budget_pct: float | None) -> str:
    """`int8 1.2 %, fp8 3.7 % (over)`: each format that the budget does not hold is marked."""
    return ", ".join(
        f"{guide.format} {percent_text(guide.relative_pct)}"
        + (" (over)" if budget_pct is not None and guide.relative_pct > budget_pct else "")
        for guide in row.errors
    )


def budget_text(advice: Advice) -> str:
    """The budget and what it excludes: `error budget 3 %; over it: w8a8 in fp8, ...`; or empty."""
    budget = advice.budget_pct
    if budget is None:
        return ""
    rows = (row for item in advice.workloads for regime in item.regimes for row in regime.formats)
    over = dict.fromkeys(
        f"{row.precision.value} in {guide.format}"
        for row in rows
        for guide in row.errors
        if guide.relative_pct > budget
    )
    beyond = f"; over it: {', '.join(over)}" if over else "; nothing is over it"
    return f"error budget {budget:g} %{beyond}"


def floor_notes(rows: Iterable[FormatAdvice]) -> list[str]:
    """Why floors are extrapolated, each reason once with the formats it is true of."""
    found: dict[str, set[Precision]] = {}
    for row in rows:
        for note in row.floor.notes if row.floor else ():
            found.setdefault(note, set()).add(row.precision)
    return [
        f"~ floor of {', '.join(p.value for p in Precision if p in named)}: {plain(note)}"
        for note, named in found.items()
    ]


def estimated_ratio(row: FormatAdvice, baseline: FormatAdvice) -> float | None:
    """Estimated bf16 time over this format's: what orders the candidates for a probe."""
    if row.estimate is None or baseline.estimate is None or row.estimate.time_us <= 0:
        return None
    return baseline.estimate.time_us / row.estimate.time_us


def verdict_text(row: FormatAdvice) -> str:
    """The verdict in words; bf16 is what the others are compared with."""
    return "baseline" if row.verdict is None else VERDICTS[row.verdict]


def format_cells(row: FormatAdvice, budget_pct: float | None) -> list[str]:
    """One precision as cells of `FORMAT_HEADS`."""
    return [
        row.precision.value,
        bytes_text(row.working_set_bytes),
        FITS[row.fit],
        floor_text(row.floor),
        estimate_text(row),
        at_most_text(row),
        errors_text(row, budget_pct),
        verdict_text(row),
    ]


FORMAT_HEADS = (
    "precision",
    "working set",
    "fits L2",
    "floor",
    "estimate",
    "at most",
    "error",
    "verdict",
)


def totals_texts(advice: Advice) -> list[str]:
    """A sentence for each batch size and regime of a model's step."""
    groups: dict[tuple[int, str], dict[str, float | None]] = {}
    bf16: dict[tuple[int, str], float | None] = {}
    for total in advice.totals:
        key = (total.tokens, total.regime.value)
        groups.setdefault(key, {})[total.precision.value] = total.floor_us
        if total.precision.value == "bf16":
            bf16[key] = total.estimate_us
    texts = []
    for (tokens, regime), floors in groups.items():
        known = ", ".join(f"{name} {duration_text(us)}" for name, us in floors.items())
        now = duration_text(bf16[tokens, regime])
        texts.append(
            f"{count_text(tokens, 'token')}, {regime}: all products in bf16 {now}; floors {known}"
        )
    return texts
