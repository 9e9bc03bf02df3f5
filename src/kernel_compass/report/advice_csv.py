"""The CSV output: one row for each workload, regime and precision; units in the column names."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from kernel_compass.records.advice import Advice, FormatAdvice
from kernel_compass.report.formats import Style

COLUMNS = (
    "calibration",
    "device",
    "model",
    "tp",
    "name",
    "op",
    "heads",
    "tokens",
    "reduction",
    "columns",
    "layers",
    "sharded",
    "regime",
    "precision",
    "weight_bytes",
    "working_set_bytes",
    "cache_fit",
    "floor_us",
    "floor_high_us",
    "floor_bound",
    "floor_basis",
    "estimate_us",
    "estimate_low_us",
    "estimate_high_us",
    "estimate_bound",
    "at_most",
    "smallest_error_pct",
    "within_budget",
    "verdict",
    "reason",
)
"""Stable names, in order; an empty cell is an unknown value."""

Row = dict[str, str | int | float]


def write(advice: Advice, _style: Style) -> str:
    """One table with a header."""
    stream = StringIO()
    table = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(_rows(advice))
    return stream.getvalue()


def _rows(advice: Advice) -> Iterator[Row]:
    head: Row = {"calibration": advice.calibration, "device": advice.device.name or ""}
    if advice.model is not None:
        head |= {"model": advice.model, "tp": advice.tp or 1}
    for item in advice.workloads:
        w = item.workload
        place: Row = {
            "name": w.name or "",
            "op": w.op.value,
            "heads": w.heads,
            "tokens": w.tokens,
            "reduction": w.reduction,
            "columns": w.columns,
            "sharded": item.sharded or "",
        }
        if item.layers is not None:
            place["layers"] = item.layers
        for regime in item.regimes:
            for row in regime.formats:
                yield head | place | {"regime": regime.regime.value} | _format(row)


def _format(row: FormatAdvice) -> Row:
    found: Row = {
        "precision": row.precision.value,
        "weight_bytes": row.weight_bytes,
        "working_set_bytes": row.working_set_bytes,
        "cache_fit": row.fit.value,
        "smallest_error_pct": min(guide.relative_pct for guide in row.errors),
        "verdict": row.verdict.value if row.verdict else "",
        "reason": row.reason,
    }
    if row.floor is not None:
        found |= {
            "floor_us": row.floor.time_us,
            "floor_bound": row.floor.bound,
            "floor_basis": row.floor.basis.value,
        }
        if row.floor.high_us is not None:
            found["floor_high_us"] = row.floor.high_us
    if row.estimate is not None:
        found |= {
            "estimate_us": row.estimate.time_us,
            "estimate_low_us": row.estimate.low_us,
            "estimate_high_us": row.estimate.high_us,
            "estimate_bound": row.estimate.bound,
        }
    if row.at_most is not None:
        found["at_most"] = row.at_most
    if row.within_budget is not None:
        found["within_budget"] = str(row.within_budget).lower()
    return found
