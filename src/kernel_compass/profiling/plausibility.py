"""Values that no kernel can have: what they give away is a file that was damaged or misread.

ncu does not clamp, so percentages may exceed 100 or be negative; these limits are far beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from types import MappingProxyType

from kernel_compass.errors import AmbiguousCapture, CaptureError, DamagedCapture
from kernel_compass.profiling.metric_cells import DURATION
from kernel_compass.records.metrics import METRICS

_LARGEST = 1e20
_LARGEST_PCT = 1e5
"""A 1.5 us kernel shows 800 % of L1; this is not it."""
_MAXIMA: Mapping[str, float] = MappingProxyType(
    {
        DURATION: 1e13,
        "threads_per_inst": 32.0,
        "threads_pred_on_per_inst": 32.0,
        "global_load_bytes_per_sector": 32.0,
        "global_store_bytes_per_sector": 32.0,
        "theoretical_occupancy_pct": 100.0,
        "block_size": 1024.0,
        "l2_hit_rate_pct": 2000.0,
        "l1_hit_rate_pct": 2000.0,
    }
)
_COUNTED = frozenset(("bytes", "sectors", "instructions", "requests", "wavefronts", "threads"))
_COUNTS = frozenset(
    key
    for key, (unit, _) in METRICS.items()
    if unit in _COUNTED and not key.endswith(("_per_sector", "_per_inst"))
)
_SLACK = 1e-3
"""Rounding of scaled units; a count has no fraction."""


def check_values(kernel: str, values: Mapping[str, Sequence[float]]) -> None:
    """Check a kernel's values, launch by launch, before means hide them.

    Args:
        kernel: its name, for the message.
        values: per metric key (and the duration in us) one value a launch, NaN where none.

    Raises:
        DamagedCapture: a value that cannot be.
        AmbiguousCapture: a count with a fraction, as a thousands point read as a decimal one.
    """
    for key, column in values.items():
        largest = _MAXIMA.get(key, _LARGEST_PCT if key.endswith("_pct") else _LARGEST) * (
            1 + _SLACK
        )
        smallest = -_LARGEST_PCT if key.endswith("_pct") else 0.0
        for value in column:
            if isnan(value):
                continue
            if not smallest <= value <= largest:
                raise _impossible(kernel, key, value)
            if key in _COUNTS and value < 1e9 and abs(value - round(value)) > _SLACK:
                raise AmbiguousCapture(
                    f"{kernel[:60]} has {value:g} {METRICS[key][0]} as {key}: a count with a "
                    "fraction, so a separator of thousands may have been read as a decimal point.",
                    "Export it again with LC_ALL=C and --print-units base.",
                )


def _impossible(kernel: str, key: str, value: float) -> CaptureError:
    name = "a duration in us" if key == DURATION else key
    return DamagedCapture(
        f"{kernel[:60]} has {value:g} as {name}, which cannot be: cells may be shifted or damaged.",
        "Copy the file again, or export the report again.",
    )
