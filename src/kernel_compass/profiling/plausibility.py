"""Values that no kernel can have: what they give away is a file that was damaged or misread.

ncu does not clamp, so percentages may exceed 100 or be negative; these limits are far beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from types import MappingProxyType

from kernel_compass.errors import AmbiguousCapture, CaptureError, DamagedCapture
from kernel_compass.profiling.metric_cells import DURATION
from kernel_compass.records.metrics import METRICS, OCCUPANCY_LIMITS

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
_NEVER_NEGATIVE = frozenset(
    (
        *(DURATION, "registers_per_thread", "grid_size", "block_size", "cluster_size", "sm_count"),
        *("waves_per_sm", "shared_memory_static_bytes", "shared_memory_dynamic_bytes"),
        *("dram_bytes_read", "dram_bytes_written", "dram_bytes", "dram_bytes_per_second"),
        *(f"occupancy_limit_{name}" for name in OCCUPANCY_LIMITS),
    )
)
_NEGATIVE_DIFFERENCE = 1e4
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
        known = [value for value in column if not isnan(value)]
        if not known:
            continue
        usual = _LARGEST_PCT if key.endswith("_pct") else _LARGEST
        largest = _MAXIMA.get(key, usual) * (1.0 + _SLACK)
        for value in (min(known), max(known)):
            if not _smallest(key) <= value <= largest:
                raise _impossible(kernel, key, value)
        if key in _COUNTS and not all(map(float.is_integer, known)):
            _require_whole(kernel, key, known)


def _smallest(key: str) -> float:
    """Counters that ncu takes as differences between passes can come out a little negative."""
    if key.endswith("_pct"):
        return -_LARGEST_PCT
    return 0.0 if key in _NEVER_NEGATIVE else -_NEGATIVE_DIFFERENCE


def _require_whole(kernel: str, key: str, values: Sequence[float]) -> None:
    for value in values:
        if value < 1e9 and abs(value - round(value)) > _SLACK:
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
