"""Documents of the calibration schema as records again; contradictions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite

from kernel_compass.codec import calibration_document as doc
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

CURVE_REGIMES = (Regime.WARM, Regime.COLD)
"""A stream is re-read or rotated; nothing else is calibrated."""


def calibration_of(document: doc.Document) -> Calibration:
    """The calibration in a document of this version.

    Raises:
        ValueError: a word this version does not know, or values that contradict each other.
    """
    if not document.name.strip():
        raise ValueError("it has no name")
    noise = document.noise
    return Calibration(
        name=document.name,
        environment=_environment(document.environment),
        launch_mode=LaunchMode(document.launch_mode),
        curves=_curves(document.curves),
        c_eff_bytes=_quantity("c_eff_bytes", document.c_eff_bytes),
        peak_tflops=_quantities("peak_tflops", document.peak_tflops),
        dequantization_tweights_s=_quantities(
            "dequantization_tweights_s", document.dequantization_tweights_s
        ),
        t0_graph_us=_quantity("t0_graph_us", document.t0_graph_us),
        t0_eager_us=_quantity("t0_eager_us", document.t0_eager_us),
        bytes_in_flight=_quantities("bytes_in_flight", document.bytes_in_flight),
        noise=NoiseFloor(
            _quantity("within_process_pct", noise.within_process_pct),
            _quantity("between_processes_pct", noise.between_processes_pct),
        ),
        datasheet=_quantities("datasheet", document.datasheet),
        notes=tuple(document.notes),
    )


def _environment(environment: doc.EnvironmentDocument) -> Environment:
    device = environment.device
    return Environment(
        device=Device(device.name, device.compute_capability, device.sm_count, device.l2_bytes),
        driver=environment.driver,
        torch=environment.torch,
        triton=environment.triton,
        python=environment.python,
        kernel_compass=environment.kernel_compass,
        date=environment.date,
    )


def _quantities(name: str, quantities: Mapping[str, doc.QuantityDocument]) -> dict[str, Quantity]:
    return {key: _quantity(f"{name}.{key}", value) for key, value in quantities.items()}


def _quantity(name: str, quantity: doc.QuantityDocument) -> Quantity:
    basis, value = Basis(quantity.basis), quantity.value
    if (value is None) is not (basis is Basis.ABSENT):
        raise ValueError(f"{name} has the value {value} and the basis {basis.value!r}")
    if value is None and (quantity.low is not None or quantity.high is not None):
        raise ValueError(f"{name} is absent and has an interval")
    ends = [end for end in (quantity.low, value, quantity.high) if end is not None]
    if not all(isfinite(end) and end >= 0 for end in ends):
        raise ValueError(f"{name} has a negative or infinite value")
    if ends != sorted(ends):
        raise ValueError(f"{name} lies outside its interval: {ends}")
    return Quantity(value, basis, quantity.source, quantity.low, quantity.high)


def _curves(curves: list[doc.CurveDocument]) -> tuple[StreamCurve, ...]:
    decoded = tuple(_curve(curve) for curve in curves)
    kinds = [(curve.access, curve.regime) for curve in decoded]
    if len(set(kinds)) < len(kinds):
        raise ValueError("two curves have the same access and regime")
    return decoded


def _curve(curve: doc.CurveDocument) -> StreamCurve:
    access, regime = Access(curve.access), Regime(curve.regime)
    name = f"the {regime.value} {access.value} curve"
    if regime not in CURVE_REGIMES:
        raise ValueError(f"{name} is in no regime that is calibrated")
    points = tuple(CurvePoint(p.bytes, p.duration_us, Basis(p.basis)) for p in curve.points)
    if any(p.bytes <= 0 or not isfinite(p.duration_us) or p.duration_us <= 0 for p in points):
        raise ValueError(f"{name} has a point that is not positive")
    if any(a.bytes >= b.bytes for a, b in pairwise(points)):
        raise ValueError(f"{name} is not in ascending order of bytes")
    if any(p.basis is Basis.ABSENT for p in points):
        raise ValueError(f"{name} has a point that is absent")
    return StreamCurve(access, regime, points, curve.source)
