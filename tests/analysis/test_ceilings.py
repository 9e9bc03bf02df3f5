"""Ceilings read out of calibrations, the shipped ones included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kernel_compass
from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import default_terms
from kernel_compass.analysis.latency import predict
from kernel_compass.analysis.traffic import traffic
from kernel_compass.codec.calibration_json import decode
from kernel_compass.errors import CalibrationError
from kernel_compass.records.calibration import Access, Calibration
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Workload
from kernel_compass.units import MIB

SHIPPED = sorted((Path(kernel_compass.__file__).parent / "calibrations").glob("*.json"))


def shipped(name: str) -> Calibration:
    return decode(next(p for p in SHIPPED if p.stem == name).read_bytes())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_shipped_calibration_predicts(path: Path) -> None:
    calibration = decode(path.read_bytes())
    top = Ceilings.of(calibration)
    assert top.bw_l2_tbs > top.bw_dram_tbs
    shape = Workload(Op.BMM, 128, 1, 128, 512)
    terms = default_terms(Precision.BF16)
    moved = traffic(shape, Precision.BF16)
    warm, cold = (predict(moved, terms, r, top).time_us for r in (Regime.WARM, Regime.COLD))
    assert top.t0_us < warm < cold < 100


def test_the_published_plateaus_come_out_of_the_curves() -> None:
    top = Ceilings.of(shipped("h100"))
    assert top.bw_l2_tbs == pytest.approx(5.262, rel=0.01)
    assert top.bw_dram_tbs == pytest.approx(3.264, rel=0.01)
    assert top.t0_us == pytest.approx(2.326)


def test_the_curve_is_met_by_a_kernel_that_reaches_it() -> None:
    calibration = shipped("h100")
    curve = calibration.curve(Access.READ, Regime.COLD)
    assert curve is not None
    top = Ceilings.of(calibration)
    point = next(p for p in curve.points if p.bytes == 256 * MIB)
    assert top.cold is not None
    sizes, times = top.cold
    assert times[sizes.index(float(point.bytes))] + top.t0_us == pytest.approx(point.duration_us)


def test_a_calibration_without_curves_or_capacity_is_refused_by_name() -> None:
    whole = shipped("h100")
    with pytest.raises(CalibrationError, match="read curve"):
        Ceilings.of(replace(whole, curves=()))
    unknown = replace(whole.c_eff_bytes, value=None)
    with pytest.raises(CalibrationError, match="c_eff_bytes"):
        Ceilings.of(replace(whole, c_eff_bytes=unknown))
    with pytest.raises(CalibrationError, match="bf16"):
        Ceilings.of(replace(whole, peak_tflops={}))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_ceilings_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(CalibrationError, match="bw_dram_tbs"):
        Ceilings(40e6, 2.0, 6.0, value, {"bf16": 800.0})
    with pytest.raises(CalibrationError, match="int4"):
        Ceilings(40e6, 2.0, 6.0, 3.0, {"bf16": 800.0}, {"int4": value})
