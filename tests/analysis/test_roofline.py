"""Roofline coordinates against arithmetic done by hand."""

from __future__ import annotations

import math

import pytest

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.roofline import Level, roofline, roofs
from kernel_compass.errors import UsageError

TOP = Ceilings(40e6, 2.0, 6.0, 3.0, {"bf16": 600.0, "fp8": 1200.0})


def test_each_level_has_its_own_intensity_and_roof() -> None:
    found = roofline(1e9, {Level.L2: 100e6, Level.DRAM: 50e6}, 20.0, TOP)
    l2, dram = found.points
    assert (l2.intensity_flops_per_byte, dram.intensity_flops_per_byte) == (10.0, 20.0)
    assert (l2.attainable_tflops, dram.attainable_tflops) == (60.0, 60.0)
    assert l2.attained_tflops == pytest.approx(50.0)
    assert dram.attained_pct == pytest.approx(100 * 50 / 60)


def test_nearest_roof_is_the_busier_level() -> None:
    resident = roofline(1e9, {Level.L2: 100e6, Level.DRAM: 1e6}, 20.0, TOP)
    assert resident.nearest.level is Level.L2
    streaming = roofline(1e9, {Level.L2: 50e6, Level.DRAM: 50e6}, 20.0, TOP)
    assert streaming.nearest.level is Level.DRAM


def test_past_the_ridge_the_peak_is_the_roof() -> None:
    _, dram = roofs(TOP, "bf16")
    assert dram.ridge_flops_per_byte == 200.0
    assert dram.attainable_tflops(200.0) == dram.attainable_tflops(1e6) == 600.0
    assert roofs(TOP, "fp8")[0].peak_tflops == 1200.0


def test_eight_bits_are_under_the_faster_of_their_two_peaks() -> None:
    assert roofs(TOP, "8bit")[0].peak_tflops == 1200.0
    both = Ceilings(40e6, 2.0, 6.0, 3.0, {"bf16": 600.0, "fp8": 1480.0, "int8": 951.0})
    assert roofs(both, "8bit")[1].peak_tflops == 1480.0
    assert both.peak("int8") == 951.0
    neither = Ceilings(40e6, 2.0, 6.0, 3.0, {"bf16": 600.0})
    assert neither.peak("8bit") == 600.0


def test_a_level_that_moved_nothing_bounds_nothing() -> None:
    (dram,) = roofline(1e9, {Level.DRAM: 0.0}, 20.0, TOP).points
    assert dram.intensity_flops_per_byte is None
    assert dram.attainable_tflops == 600.0


@pytest.mark.parametrize(
    ("flops", "moved", "time_us"),
    [
        (0.0, 1e6, 1.0),
        (1e9, -1.0, 1.0),
        (1e9, math.nan, 1.0),
        (1e9, 1e6, 0.0),
        (1e9, 1e6, math.inf),
    ],
)
def test_numbers_no_kernel_has_are_refused(flops: float, moved: float, time_us: float) -> None:
    with pytest.raises(UsageError):
        roofline(flops, {Level.DRAM: moved}, time_us, TOP)


def test_no_level_is_refused() -> None:
    with pytest.raises(UsageError, match="level"):
        roofline(1e9, {}, 1.0, TOP)
