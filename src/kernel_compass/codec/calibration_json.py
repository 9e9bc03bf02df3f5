"""A calibration as a `kernel-compass/calibration/1` document, and back.

Numbers that are not finite never leave: such a quantity becomes `absent` with the reason in its
source, such a point of a curve is left out, and a note says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from math import isfinite
from typing import Any

import msgspec

from kernel_compass.codec import calibration_document as doc
from kernel_compass.codec.calibration_decode import calibration_of
from kernel_compass.codec.calibration_document import NAME, SCHEMA, VERSION
from kernel_compass.codec.finite import finite
from kernel_compass.codec.json_reading import read_json
from kernel_compass.errors import CalibrationError, shortened
from kernel_compass.records.calibration import (
    Basis,
    Calibration,
    CurvePoint,
    Quantity,
    StreamCurve,
)
from kernel_compass.records.environment import Environment

_MEASURE = "Measure one with `kernel-compass calibrate`."
_DIGITS = 9


def encode(calibration: Calibration) -> bytes:
    """A calibration as an indented UTF-8 JSON object with a final newline.

    Raises:
        CalibrationError: it contradicts itself, so that `decode` would refuse it.
    """
    document = to_document(calibration)
    try:
        calibration_of(document)
    except ValueError as error:
        found = f"The calibration {calibration.name!r} contradicts itself: {error}."
        raise CalibrationError(found, _MEASURE) from None
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decode(data: bytes | str, label: str = "This") -> Calibration:
    """The calibration that a document holds.

    Args:
        data: a JSON object written by this or an older version.
        label: what messages call it: its path, say.

    Raises:
        CalibrationError: it is no such document, or a newer version's.
    """
    try:
        _check_version(read_json(data, doc.Heading).schema, label)
        return calibration_of(read_json(data, doc.Document, distinct_keys=True))
    except ValueError as error:
        found = f"{label} is not a {SCHEMA} document: {error}."
        raise CalibrationError(found, _MEASURE) from None


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents."""
    path = files("kernel_compass.codec").joinpath("schemas/calibration-1.schema.json")
    result: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return result


def to_document(calibration: Calibration) -> doc.Document:
    """A calibration in the document's shape, not yet as text."""
    curves = [_curve(curve) for curve in calibration.curves]
    kept = sum(len(curve.points) for curve in curves)
    lost = sum(len(curve.points) for curve in calibration.curves) - kept
    notes = list(calibration.notes)
    if lost:
        notes.append(f"{lost} points of the curves had no finite positive time: left out")
    return doc.Document(
        schema=SCHEMA,
        name=calibration.name,
        environment=_environment(calibration.environment),
        launch_mode=calibration.launch_mode.value,
        curves=curves,
        c_eff_bytes=_quantity(calibration.c_eff_bytes),
        peak_tflops=_quantities(calibration.peak_tflops),
        dequantization_tweights_s=_quantities(calibration.dequantization_tweights_s),
        t0_graph_us=_quantity(calibration.t0_graph_us),
        t0_eager_us=_quantity(calibration.t0_eager_us),
        bytes_in_flight=_quantities(calibration.bytes_in_flight),
        noise=doc.NoiseDocument(
            _quantity(calibration.noise.within_process_pct),
            _quantity(calibration.noise.between_processes_pct),
        ),
        datasheet=_quantities(calibration.datasheet),
        notes=notes,
    )


def _check_version(schema: str, label: str) -> None:
    name, _, version = schema.rpartition("/")
    if name == NAME and _is_newer(version):
        said = shortened(schema)
        found = f"{label} was written by a newer kernel-compass: its schema is {said!r}, "
        found += f"and this one reads up to {SCHEMA!r}."
        raise CalibrationError(found, "Upgrade kernel-compass, or `kernel-compass calibrate` here.")
    if schema != SCHEMA:
        raise ValueError(f"its schema is {shortened(schema)!r}")


def _is_newer(version: str) -> bool:
    digits = version.lstrip("0")  # Python reads no number of thousands of digits
    return version.isdecimal() and (len(digits) > _DIGITS or int(digits or "0") > VERSION)


def _environment(environment: Environment) -> doc.EnvironmentDocument:
    device = environment.device
    return doc.EnvironmentDocument(
        device=doc.DeviceDocument(
            device.name, device.compute_capability, device.sm_count, device.l2_bytes
        ),
        driver=environment.driver,
        torch=environment.torch,
        triton=environment.triton,
        python=environment.python,
        kernel_compass=environment.kernel_compass,
        date=environment.date,
    )


def _quantities(quantities: Mapping[str, Quantity]) -> doc.Quantities:
    return {key: _quantity(quantity) for key, quantity in quantities.items()}


def _quantity(quantity: Quantity) -> doc.QuantityDocument:
    value, source = quantity.value, quantity.source
    if value is None:
        return doc.QuantityDocument(None, Basis.ABSENT.value, source)
    if not isfinite(value):
        return doc.QuantityDocument(None, Basis.ABSENT.value, f"not a finite number; {source}")
    low, high = finite(quantity.low), finite(quantity.high)
    return doc.QuantityDocument(float(value), quantity.basis.value, source, low, high)


def _curve(curve: StreamCurve) -> doc.CurveDocument:
    points = [_point(p) for p in curve.points if isfinite(p.duration_us) and p.duration_us > 0]
    return doc.CurveDocument(curve.access.value, curve.regime.value, curve.source, points)


def _point(point: CurvePoint) -> doc.PointDocument:
    return doc.PointDocument(int(point.bytes), float(point.duration_us), point.basis.value)
