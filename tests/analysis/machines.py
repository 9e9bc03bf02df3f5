"""Calibrations made by hand for tests.

H200: one card, PyTorch 2.11+cu130, Triton 3.6.0, driver 580, CUDA-graph replays over n launches,
clocks as found; a Triton kernel that only reads. One run: a few percent from card to card.
"""

from __future__ import annotations

from dataclasses import replace

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
SOURCE = "one H200, driver 580, Triton 3.6.0, graph replays"
H200_READ = (
    (1, 1.76, 1.87),
    (2, 2.06, 2.53),
    (4, 2.34, 3.07),
    (8, 2.88, 4.00),
    (12, 3.34, 4.97),
    (16, 3.84, 5.93),
    (20, 4.27, 7.03),
    (24, 4.82, 7.93),
    (28, 5.18, 8.98),
    (32, 5.79, 9.74),
    (36, 6.14, 10.82),
    (40, 6.71, 11.65),
    (44, 7.13, 12.71),
    (48, 12.25, 13.51),
    (52, 14.32, 14.41),
    (56, 15.40, 15.44),
    (60, 16.31, 16.33),
    (64, 17.26, 17.23),
    (80, 20.92, 20.86),
    (96, 24.58, 24.59),
    (128, 31.94, 31.98),
    (256, 61.37, 61.34),
    (512, 120.26, 120.24),
)
"""MiB, us re-read, us rotated."""


def measured(value: float, low: float | None = None, high: float | None = None) -> Quantity:
    return Quantity(value, Basis.MEASURED, SOURCE, low, high)


ABSENT = Quantity(None, Basis.ABSENT, "not measured")


def curve(
    regime: Regime,
    points: list[tuple[float, float]],
    access: Access = Access.READ,
    basis: Basis = Basis.MEASURED,
) -> StreamCurve:
    """Points as MiB and us."""
    return StreamCurve(
        access, regime, tuple(CurvePoint(int(mib * MIB), us, basis) for mib, us in points), SOURCE
    )


WARM = curve(Regime.WARM, [(mib, warm) for mib, warm, _ in H200_READ])
COLD = curve(Regime.COLD, [(mib, cold) for mib, _, cold in H200_READ])


def h200(**changes: object) -> Calibration:
    calibration = Calibration(
        name="h200",
        environment=Environment(Device("NVIDIA H200", "9.0", 132, 60 * MIB), driver="580"),
        launch_mode=LaunchMode.GRAPH,
        curves=(WARM, COLD),
        c_eff_bytes=measured(46 * MIB, 44 * MIB, 48 * MIB),
        peak_tflops={"bf16": measured(733.0), "fp8": measured(1408.0), "int8": measured(902.0)},
        dequantization_tweights_s={},
        t0_graph_us=measured(1.08),
        t0_eager_us=measured(24.0),
        bytes_in_flight={},
        noise=NoiseFloor(ABSENT, ABSENT),
        datasheet={},
    )
    return replace(calibration, **changes)  # type: ignore[arg-type]
