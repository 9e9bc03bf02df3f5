"""Calibrations that tests share."""

from __future__ import annotations

from kernel_compass.records.calibration import (
    Access,
    Basis,
    Calibration,
    CurvePoint,
    NoiseFloor,
    Quantity,
    StreamCurve,
)
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime

MIB = 1 << 20
WARM_US = {1: 1.76, 4: 2.34, 16: 3.84, 32: 5.79, 44: 7.13, 48: 12.25, 64: 17.26, 128: 31.94}
COLD_US = {1: 1.87, 4: 3.07, 16: 5.93, 32: 9.74, 44: 12.71, 48: 13.51, 64: 17.23, 128: 31.98}


def measured(value, low=None, high=None):
    return Quantity(value, Basis.MEASURED, "a probe kernel", low, high)


ABSENT = Quantity(None, Basis.ABSENT, "not asked for")


def curve(regime, times, access=Access.READ):
    points = tuple(CurvePoint(mib * MIB, us) for mib, us in times.items())
    return StreamCurve(access, regime, points, "a streaming kernel")


def complete():
    """All that a live calibration holds, in round numbers."""
    return Calibration(
        name="nvidia-h200",
        environment=Environment(
            Device("NVIDIA H200", "9.0", 132, 60 * MIB),
            driver="580.65.06",
            torch="2.11.0+cu130",
            triton="3.6.0",
            python="3.12.3",
            kernel_compass="0.1.0",
            date="2026-12-01T12:00:00Z",
        ),
        launch_mode=LaunchMode.GRAPH,
        curves=(
            curve(Regime.WARM, WARM_US),
            curve(Regime.COLD, COLD_US),
            curve(Regime.COLD, {64: 20.0, 128: 36.0}, Access.READ_WRITE),
        ),
        c_eff_bytes=measured(46.0 * MIB, 44.0 * MIB, 48.0 * MIB),
        peak_tflops={"bf16": measured(733.0), "fp8": measured(1408.0), "int8": measured(902.0)},
        dequantization_tweights_s={"int4": measured(12.5), "fp8": ABSENT},
        t0_graph_us=measured(1.08, 1.05, 1.12),
        t0_eager_us=measured(24.0),
        bytes_in_flight={"dram": measured(5.1 * MIB), "l2": ABSENT},
        noise=NoiseFloor(measured(0.4), measured(1.1)),
        datasheet={"dram_tbs": Quantity(4.8, Basis.DATASHEET, "NVIDIA H200 datasheet")},
        notes=("clocks as found",),
    )
