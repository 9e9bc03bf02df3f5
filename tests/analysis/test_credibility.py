"""Ceilings above the vendor's bounds are said; unknown bounds are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_compass import api
from kernel_compass.analysis.credibility import beyond_datasheet
from kernel_compass.records.calibration import Access, Basis, CurvePoint, Quantity
from kernel_compass.records.profile import Regime


def h200():
    return api.calibration("h200")


@pytest.mark.parametrize("name", ["a100", "b200", "b300", "h100", "h200"])
def test_the_shipped_ones_are_credible(name):
    assert beyond_datasheet(api.calibration(name)) == ()


def test_a_peak_above_the_datasheet():
    sparse = {**h200().peak_tflops, "bf16": Quantity(1979.0, Basis.MEASURED, "a sparse product")}
    (said,) = beyond_datasheet(replace(h200(), peak_tflops=sparse))
    assert "bf16 peak of 1979" in said


def test_a_cold_curve_that_l2_served():
    found = h200()
    curves = tuple(
        replace(c, points=(*c.points[:-1], CurvePoint(c.points[-1].bytes, 80.0)))
        if (c.access, c.regime) == (Access.READ, Regime.COLD)
        else c
        for c in found.curves
    )
    (said,) = beyond_datasheet(replace(found, curves=curves))
    assert "DRAM bandwidth" in said


def test_an_unknown_card_has_no_bounds():
    fast = {"bf16": Quantity(1e6, Basis.MEASURED, "a wonder")}
    assert beyond_datasheet(replace(h200(), datasheet={}, peak_tflops=fast)) == ()
