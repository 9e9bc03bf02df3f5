"""Ceilings measured beyond the vendor's bounds: a sign that something else was measured."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_compass.records.calibration import Access, Calibration
from kernel_compass.records.profile import Regime

TOLERANCE = 1.02
"""Datasheets round, and boost clocks differ a little from card to card."""


def beyond_datasheet(calibration: Calibration) -> tuple[str, ...]:
    """Every measured ceiling above its datasheet bound, in words; unknown bounds bound nothing."""
    return tuple(
        f"the measured {name} of {value:.4g} {unit} is above the datasheet's {bound:.4g}: do not "
        "trust it"
        for name, value, bound, unit in _pairs(calibration)
        if value > TOLERANCE * bound
    )


def _pairs(calibration: Calibration) -> Iterator[tuple[str, float, float, str]]:
    bounds = {key: q.value for key, q in calibration.datasheet.items() if q.value is not None}
    cold = calibration.curve(Access.READ, Regime.COLD)
    if cold is not None and "dram_tbs" in bounds:
        best = max(point.bandwidth_tbs for point in cold.points)
        yield "DRAM bandwidth", best, bounds["dram_tbs"], "TB/s"
    for name, peak in calibration.peak_tflops.items():
        bound = bounds.get(f"{name}_tflops")
        if peak.value is not None and bound is not None:
            yield f"{name} peak", peak.value, bound, "TFLOP/s"
