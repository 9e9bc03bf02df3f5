"""What the latency model needs of a machine: plateaus, or measured curves where there are some."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.analysis.peaks import fastest
from kernel_compass.errors import CalibrationError
from kernel_compass.records.calibration import Access, Calibration, Quantity, StreamCurve
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime

REMEDY = "Calibrate this machine: kernel-compass calibrate."

Curve = tuple[tuple[float, ...], tuple[float, ...]]
"""Bytes, ascending, and the microseconds that streaming them takes beyond the fixed cost."""


@dataclass(frozen=True)
class Ceilings:
    """The ceilings of one machine in one launch mode.

    Raises:
        CalibrationError: a ceiling is not a positive finite number.
    """

    c_eff_bytes: float
    t0_us: float
    """Fixed cost of a launch in the launch mode asked for."""
    bw_l2_tbs: float
    """Marginal bandwidth of L2-resident re-reads, 1e12 B/s."""
    bw_dram_tbs: float
    peak_tflops: Mapping[str, float]
    """By format, dense; `bf16` must be there."""
    dequantization_tweights_s: Mapping[str, float] | None = None
    """By format, 1e12 weights converted a second; a format that is missing bounds nothing."""
    sm_count: int | None = None
    warm: Curve | None = None
    """Measured L2 side up to `c_eff_bytes`; replaces bytes / `bw_l2_tbs`."""
    cold: Curve | None = None

    def __post_init__(self) -> None:
        named = {
            "c_eff_bytes": self.c_eff_bytes,
            "t0_us": self.t0_us,
            "bw_l2_tbs": self.bw_l2_tbs,
            "bw_dram_tbs": self.bw_dram_tbs,
            "peak_tflops['bf16']": self.peak_tflops.get("bf16", math.nan),
        }
        for name, value in named.items():
            _positive(name, value)
        for name, value in (self.dequantization_tweights_s or {}).items():
            _positive(f"dequantization_tweights_s[{name!r}]", value)

    def peak(self, math_format: str) -> float:
        """The peak of this kind of arithmetic, TFLOP/s; where none was measured, that of bf16.

        A kernel's efficiency is then relative to the bf16 peak, which its wide prior allows for.
        """
        return fastest(math_format, self.peak_tflops) or self.peak_tflops["bf16"]

    @classmethod
    def of(cls, calibration: Calibration) -> Ceilings:
        """The ceilings in a calibration, for launches in a CUDA graph.

        Eager, a launch takes the longer of the model's time and `t0_eager_us`: the CPU issues it
        while the GPU works.

        Raises:
            CalibrationError: a curve, the capacity, the fixed cost or the bf16 peak is missing.
        """
        c_eff = _known(calibration, "c_eff_bytes", calibration.c_eff_bytes)
        t0_inside = _t0(calibration, calibration.launch_mode)
        warm = _side(calibration, Regime.WARM, t0_inside, up_to=c_eff)
        cold = _side(calibration, Regime.COLD, t0_inside, up_to=math.inf)
        return cls(
            c_eff_bytes=c_eff,
            t0_us=_t0(calibration, LaunchMode.GRAPH),
            bw_l2_tbs=_plateau(warm),
            bw_dram_tbs=_plateau(cold),
            peak_tflops=_present(calibration.peak_tflops),
            dequantization_tweights_s=_present(calibration.dequantization_tweights_s),
            sm_count=calibration.environment.device.sm_count,
            warm=warm,
            cold=cold,
        )


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise CalibrationError(f"The calibration's {name} is {value}.", REMEDY)


def _known(calibration: Calibration, name: str, quantity: Quantity) -> float:
    if quantity.value is None:
        raise CalibrationError(
            f"The calibration {calibration.name!r} has no {name} ({quantity.source}).", REMEDY
        )
    return quantity.value


def _present(quantities: Mapping[str, Quantity]) -> dict[str, float]:
    return {name: q.value for name, q in quantities.items() if q.value is not None}


def _t0(calibration: Calibration, mode: LaunchMode) -> float:
    graph = mode is LaunchMode.GRAPH
    quantity = calibration.t0_graph_us if graph else calibration.t0_eager_us
    return _known(calibration, f"t0_{mode}_us", quantity)


def _side(calibration: Calibration, regime: Regime, t0_us: float, up_to: float) -> Curve:
    """One level's curve without the fixed cost; never falling, as more bytes take no less time."""
    curve: StreamCurve | None = calibration.curve(Access.READ, regime)
    points = [p for p in curve.points if p.bytes <= up_to] if curve else []
    if len(points) < 2:
        raise CalibrationError(
            f"The calibration {calibration.name!r} has no {regime} read curve to go by.", REMEDY
        )
    sizes, times, latest = [], [], 0.0
    for point in points:
        latest = max(latest, point.duration_us - t0_us)
        sizes.append(float(point.bytes))
        times.append(latest)
    return tuple(sizes), tuple(times)


def _plateau(curve: Curve) -> float:
    """Marginal bandwidth over the upper three quarters of the sizes, TB/s."""
    sizes, times = curve
    first = next(i for i, size in enumerate(sizes) if size >= sizes[-1] / 4 or i == len(sizes) - 2)
    return (sizes[-1] - sizes[first]) / max(times[-1] - times[first], 1e-9) / 1e6
