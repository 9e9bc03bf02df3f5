"""The CSV output: one row for each kernel and regime, units in the column names."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from math import isfinite

from kernel_compass.codec.diagnosis_document import REQUIRED_METRICS
from kernel_compass.records.diagnosis import Diagnosis
from kernel_compass.records.profile import Dim3, DurationStats, Regime
from kernel_compass.records.report import RegimeView, Report, ReportKernel
from kernel_compass.report.formats import Style
from kernel_compass.report.phrases import evidence_text
from kernel_compass.report.summary import regimes_of

COLUMNS = (
    "source",
    "label",
    "regime",
    "rank",
    "kernel",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "launches",
    "share_of_time",
    "duration_mean_us",
    "duration_median_us",
    "duration_min_us",
    "duration_max_us",
    "duration_total_us",
    "limiter",
    "pipe",
    "confidence",
    "flags",
    "reuse",
    "headroom",
    "headroom_basis",
    "evidence",
    "advice",
    *REQUIRED_METRICS,
)
"""Stable names, in order. An empty cell is an unknown value; several words of a list are separated
by a semicolon; `share_of_time` (0-1) is that of the row's own regime."""

TIMELINE_COLUMNS = (
    "share_of_span",
    "gap_before_us",
    "late_us",
    "launch_delay_us",
    "launches_in_graph",
    "launches_in_runs",
    "op",
    "compulsory_bytes",
    "flops",
)
"""Behind the others, only where one of the reports is of a timeline."""

Row = dict[str, str | int | float]


def write(reports: Sequence[Report], _style: Style) -> str:
    """All reports as one table with a header."""
    stream = StringIO()
    more = TIMELINE_COLUMNS if any(report.timeline for report in reports) else ()
    table = csv.DictWriter(stream, (*COLUMNS, *more), restval="", lineterminator="\n")
    table.writeheader()
    for report in reports:
        table.writerows(_rows(report))
    return stream.getvalue()


def _rows(report: Report) -> Iterator[Row]:
    regimes = regimes_of(report)
    paths = {source.regime: source.path or "" for source in report.sources}
    totals = {regime: _total(report, regime) for regime in regimes}
    for rank, item in enumerate(report.kernels, start=1):
        if not regimes or item.regimes is None:
            source = report.sources[0] if report.sources else None
            regime = source.regime if source else Regime.UNKNOWN
            path = (source.path or "") if source else ""
            yield _single(report, rank, item) | {"source": path, "regime": regime.value}
            continue
        for regime in regimes:
            view = item.regimes.get(regime)
            if view is not None:
                share = _share(view, totals[regime])
                numbers = _view(view.launches, view.duration_stats, view.metrics, view.diagnosis)
                place: Row = {"source": paths.get(regime, ""), "regime": regime.value}
                yield _kernel(report, rank, item) | place | share | numbers


def _single(report: Report, rank: int, item: ReportKernel) -> Row:
    kernel = item.kernel
    share: Row = {} if item.share_of_time is None else {"share_of_time": item.share_of_time}
    numbers = _view(kernel.launches, kernel.duration_stats, kernel.metrics, kernel.diagnosis)
    seen: Row = {}
    if item.timeline is not None:
        values = ((name, getattr(item.timeline, name)) for name in TIMELINE_COLUMNS)
        seen = {name: value for name, value in values if value is not None}
    return _kernel(report, rank, item) | share | numbers | seen


def _kernel(report: Report, rank: int, item: ReportKernel) -> Row:
    kernel = item.kernel
    row: Row = {"label": report.label or "", "rank": rank, "kernel": kernel.name}
    return row | _dims("grid", kernel.grid) | _dims("block", kernel.block)


def _dims(name: str, dim: Dim3 | None) -> Row:
    return {f"{name}_{axis}": size for axis, size in zip("xyz", dim or (), strict=False)}


def _view(
    launches: int,
    stats: DurationStats | None,
    metrics: Mapping[str, float],
    diagnosis: Diagnosis | None,
) -> Row:
    """What a regime's capture says of a kernel."""
    row: Row = {"launches": launches}
    if stats is not None:
        for name in ("mean", "median", "min", "max", "total"):
            row[f"duration_{name}_us"] = getattr(stats, name)
    row |= {
        key: metrics[key] for key in REQUIRED_METRICS if isfinite(metrics.get(key, float("nan")))
    }
    return row if diagnosis is None else row | _diagnosis(diagnosis)


def _diagnosis(diagnosis: Diagnosis) -> Row:
    row: Row = {
        "limiter": diagnosis.limiter.value,
        "pipe": diagnosis.pipe or "",
        "confidence": round(diagnosis.confidence, 4),
        "flags": ";".join(flag.value for flag in diagnosis.flags),
        "reuse": diagnosis.reuse.value if diagnosis.reuse else "",
        "evidence": "; ".join(map(evidence_text, diagnosis.evidence)),
        "advice": "; ".join(diagnosis.advice),
    }
    if diagnosis.headroom is not None:
        row |= {"headroom": diagnosis.headroom.value, "headroom_basis": diagnosis.headroom.basis}
    return row


def _total(report: Report, regime: Regime) -> float | None:
    """Time of all kernels in a regime; `None` where one of them is missing."""
    views = [view for item in report.kernels if (view := (item.regimes or {}).get(regime))]
    times = [view.duration_stats.total for view in views if view.duration_stats]
    return sum(times) if len(times) == len(views) else None


def _share(view: RegimeView, total: float | None) -> Row:
    return (
        {"share_of_time": view.duration_stats.total / total}
        if total and view.duration_stats
        else {}
    )
