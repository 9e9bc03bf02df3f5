"""A metric's name and unit cells: which key of the vocabulary they are, and how to scale it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_compass.errors import DamagedCapture
from kernel_compass.profiling.metrics import (
    BY_LABEL,
    BY_NAME,
    DEVICE_NAMES,
    DURATION_LABELS,
    DURATION_NAMES,
    Spelling,
)
from kernel_compass.profiling.unit_names import Unit, UnitKind, is_known_unit, parse_unit
from kernel_compass.records.metrics import METRICS

DURATION = "duration"
"""The pseudo key of a launch's GPU time in microseconds."""

_DEVICE_FIELDS = {name: field for field, name in DEVICE_NAMES.items()}
_LABEL_NAME = re.compile(r"(?P<label>.+) \((?P<name>[A-Za-z0-9_.]+)\)")
_UNIT_CELL = re.compile(r'(?!.*__)(?![\d.,()-]+$)[^\s"]{0,60}')  # no number, no metric name
_KINDS = {
    "%": UnitKind.PERCENT,
    "bytes": UnitKind.BYTES,
    "bytes/s": UnitKind.BANDWIDTH,
    "Hz": UnitKind.FREQUENCY,
    "us": UnitKind.TIME,
}
_TEXT_NAMES = ("launch__tpc_enabled", "Enabled TPC IDs")
_COUNT_KINDS = (UnitKind.COUNT, UnitKind.NONE, UnitKind.UNKNOWN)
_COUNTED = frozenset(
    [
        "byte",
        "inst",
        "sector",
        "sectors",
        "request",
        "thread",
        "block",
        "cluster",
        "register/thread",
        "byte/block",
    ]
)
_INTEGRAL_LABELS = frozenset(
    [
        "Elapsed Cycles",
        "Executed Instructions",
        "Grid Size",
        "Block Size",
        "Threads",
        "Registers Per Thread",
        "# SMs",
        "Branch Instructions",
        "Cluster Size",
    ]
)


@dataclass(frozen=True)
class MetricCell:
    """What a (name, unit) pair of cells stands for."""

    key: str | None
    """A vocabulary key, `DURATION`, or `None` for a metric that nothing here reads."""
    rank: int = 0
    """Order of preference among the spellings of `key`; 0 is best."""
    factor: float = 1.0
    device_field: str | None = None
    """The `Device` field it holds, where it describes the device."""
    integral: bool = False
    """Whether a fraction is impossible."""
    time: bool = False
    """Whether it counts nanoseconds."""
    dropped: bool = False
    """Whether a known metric cannot be used because its unit is unknown."""
    text: bool = False
    """Whether its cells are text that may look like a number."""


def read_metric_cells(name: str, unit: str, labels: bool = True) -> MetricCell:
    """Resolve the name and unit cells of a metric.

    Args:
        name: raw name, details-page label, or `Label (name)`.
        unit: unit cell.
        labels: whether a details-page label may stand in `name`.

    Raises:
        DamagedCapture: the cells cannot be what their columns say.
    """
    if not _UNIT_CELL.fullmatch(unit) or _is_number(name) or is_known_unit(name) or not name:
        raise DamagedCapture(
            f"metric name {name!r} with unit {unit!r}: the cells are shifted.",
            "Export the file again.",
        )
    raw, label = _split(name)
    integral = _is_integral(raw, label, unit)
    time = unit in ("ns", "nsecond")
    if raw in _TEXT_NAMES:
        return MetricCell(None, text=True)
    if raw in _DEVICE_FIELDS:
        return MetricCell(None, device_field=_DEVICE_FIELDS[raw], integral=integral)
    if raw in DURATION_NAMES or (labels and label in DURATION_LABELS):
        rank = DURATION_NAMES.index(raw) if raw in DURATION_NAMES else len(DURATION_NAMES)
        return _scaled(name, DURATION, rank, "us", unit, time=time)
    found = _spelling(raw, label if labels else "", parse_unit(unit))
    if found is None:
        return MetricCell(None, integral=integral, time=time)
    spelling, rank = found
    expected = "sectors" if spelling.factor != 1.0 else METRICS[spelling.key][0]
    return _scaled(name, spelling.key, rank, expected, unit, spelling.factor, integral)


def _split(name: str) -> tuple[str, str]:
    """Raw name and label of a name cell; either may be the whole cell."""
    match = _LABEL_NAME.fullmatch(name)
    if match and ("__" in match["name"] or match["name"] in BY_NAME):
        return match["name"], match["label"]
    return name, name


def _spelling(raw: str, label: str, unit: Unit) -> tuple[Spelling, int] | None:
    if raw in BY_NAME:
        return BY_NAME[raw]
    choices = BY_LABEL.get(label, ())
    for kind, spelling in choices:
        if kind is None or kind == unit.kind:
            return spelling, len(spelling.names)
    return (choices[0][1], len(choices[0][1].names)) if choices else None


def _scaled(
    name: str,
    key: str,
    rank: int,
    expected: str,
    unit: str,
    factor: float = 1.0,
    integral: bool = False,
    time: bool = False,
) -> MetricCell:
    found = parse_unit(unit)
    kinds = (_KINDS[expected],) if expected in _KINDS else _COUNT_KINDS
    # 2024 releases label these derived counts as bytes
    mislabelled = name.startswith("derived__") and found == Unit(UnitKind.BYTES)
    if found.kind in kinds or (mislabelled and expected not in _KINDS):
        return MetricCell(key, rank, found.factor * factor, integral=integral, time=time)
    if found.kind is UnitKind.NONE and expected == "%" and "pct" in name:
        return MetricCell(key, rank, factor)
    if found.kind in (UnitKind.NONE, UnitKind.UNKNOWN):
        return MetricCell(None, dropped=True, integral=integral)
    raise DamagedCapture(
        f"{name} has the unit {unit!r}, which is no unit of {expected}: the cells are shifted.",
        "Export the file again.",
    )


def _is_integral(raw: str, label: str, unit: str) -> bool:
    if raw.endswith(".sum") or raw.startswith("launch__"):
        return unit in _COUNTED or raw in ("launch__grid_size", "launch__block_size")
    return label in _INTEGRAL_LABELS


def _is_number(text: str) -> bool:
    return text[:1].isdigit() and text.replace(",", "").replace(".", "").isdigit()
