"""Documents of the calibration schema as records again; contradictions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite, log10

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

_LARGEST_BYTES = 1 << 50
_TIMES_US = (1e-4, 1e10)
_RATES = (1e-6, 1e9)
_LIMITS = {
    "c_eff_bytes": (1.0, float(_LARGEST_BYTES)),
    "peak_tflops": _RATES,
    "dequantization_tweights_s": _RATES,
    "t0_graph_us": _TIMES_US,
    "t0_eager_us": _TIMES_US,
    "bytes_in_flight": (1.0, float(_LARGEST_BYTES)),
    "within_process_pct": (1e-9, 1e4),
    "between_processes_pct": (1e-9, 1e4),
    "datasheet": (1e-6, 1e18),
}
"""What a value other than 0 may be: far beyond any machine, and far from where arithmetic ends."""
_MOST_SMS = 1 << 20

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
    if device.sm_count is not None and not 0 < device.sm_count <= _MOST_SMS:
        raise ValueError(f"sm_count is {_number(device.sm_count)}")
    if device.l2_bytes is not None and not 0 <= device.l2_bytes <= _LARGEST_BYTES:
        raise ValueError(f"l2_bytes is {_number(device.l2_bytes)}")
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
    if value is None:
        if quantity.low is not None or quantity.high is not None:
            raise ValueError(f"{name} is absent and has an interval")
        return Quantity(None, basis, quantity.source)
    ends = [end for end in (quantity.low, value, quantity.high) if end is not None]
    if not all(isfinite(end) and end >= 0 for end in ends):
        raise ValueError(f"{name} has a negative or infinite value")
    least, most = _LIMITS[name.partition(".")[0]]
    if any(end > most for end in ends) or 0 < value < least:
        raise ValueError(f"{name} is {value:g} ({ends[0]:g} to {ends[-1]:g}): no machine has that")
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
    if any(p.bytes > _LARGEST_BYTES for p in points):
        most = max(p.bytes for p in points)
        raise ValueError(f"{name} has a point of {_number(most)} bytes: no machine holds that")
    if any(not _TIMES_US[0] <= p.duration_us <= _TIMES_US[1] for p in points):
        worst = max((p.duration_us for p in points), key=lambda us: abs(log10(us)))
        raise ValueError(f"{name} has a point of {worst:g} us: no launch takes that")
    if any(a.bytes >= b.bytes for a, b in pairwise(points)):
        raise ValueError(f"{name} is not in ascending order of bytes")
    if any(p.basis is Basis.ABSENT for p in points):
        raise ValueError(f"{name} has a point that is absent")
    return StreamCurve(access, regime, points, curve.source)


def _number(value: int) -> str:
    """Python writes no whole number of thousands of digits."""
    if abs(value) < 1 << 64:
        return str(value)
    return "more than 2^64" if value > 0 else "less than -2^64"
