"""A report as a `kernel-compass/diagnosis/1` document, and back.

Numbers that are not finite never leave: a metric becomes `null`, a duration with such a number
counts as missing, and evidence with such a value is left out. Results of ncu's own rules are not
part of the document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import isfinite
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kernel_compass.codec import diagnosis_document as doc
from kernel_compass.codec.diagnosis_decode import report_of
from kernel_compass.codec.diagnosis_document import REQUIRED_METRICS, SCHEMA
from kernel_compass.codec.finite import finite
from kernel_compass.codec.json_reading import read_json
from kernel_compass.errors import CaptureError
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Headroom
from kernel_compass.records.profile import LEADING_ORDER, DurationStats, Regime, Source
from kernel_compass.records.report import RegimeView, Report, ReportKernel


def encode(report: Report) -> bytes:
    """A report as an indented UTF-8 JSON object with a final newline."""
    return _pretty(to_document(report))


def encode_list(reports: Sequence[Report]) -> bytes:
    """Reports as an indented UTF-8 JSON array of objects with a final newline."""
    return _pretty([to_document(report) for report in reports])


def decode(data: bytes | str) -> Report:
    """The report that a document holds.

    Args:
        data: a JSON object written by this or an older version.

    Raises:
        CaptureError: it is no such document.
    """
    try:
        return report_of(read_json(data, doc.Document))
    except ValueError as error:
        found = f"This is not a {SCHEMA} document: {error}."
        raise CaptureError(found, "Write one with `kernel-compass diagnose FILE --json`.") from None


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents."""
    text = files("kernel_compass.codec").joinpath("schemas/diagnosis-1.schema.json").read_bytes()
    result: dict[str, Any] = msgspec.json.decode(text)
    return result


def to_document(report: Report) -> doc.Document:
    """A report in the document's shape, not yet as text."""
    device = report.device
    several_gpus = len({k.kernel.device for k in report.kernels}) > 1
    regimes = _regimes(report) if len(report.sources) > 1 else ()
    return doc.Document(
        schema=SCHEMA,
        label=report.label,
        warnings=list(report.warnings),
        device=None if device is None else _device(device),
        sources=[_source(source) for source in report.sources],
        kernels=[_kernel(k, regimes, several_gpus) for k in report.kernels],
        timeline=UNSET if report.timeline is None else report.timeline,
        calibration=UNSET if report.calibration is None else report.calibration,
    )


def _regimes(report: Report) -> tuple[Regime, ...]:
    named = {source.regime for source in report.sources}
    named.update(r for k in report.kernels for r in k.regimes or ())
    return tuple(regime for regime in LEADING_ORDER if regime in named)


def _kernel(
    item: ReportKernel, regimes: tuple[Regime, ...], several_gpus: bool
) -> doc.KernelDocument:
    kernel = item.kernel
    views = item.regimes
    index = kernel.device
    return doc.KernelDocument(
        name=kernel.name,
        grid=kernel.grid,
        block=kernel.block,
        launches=kernel.launches,
        share_of_time=_share(item.share_of_time),
        duration_us=_duration(kernel.duration_stats),
        metrics=_metrics(kernel.metrics),
        diagnosis=_diagnosis(_diagnosed(kernel.diagnosis)),
        regimes=UNSET
        if not regimes or views is None
        else {r: _view(views.get(r)) for r in regimes},
        device=UNSET if not several_gpus or index is None else index,
        timeline=UNSET if item.timeline is None else item.timeline,
    )


def _diagnosed(diagnosis: Diagnosis | None) -> Diagnosis:
    if diagnosis is None:
        raise ValueError("a report holds a kernel that was not diagnosed")
    return diagnosis


def _view(view: RegimeView | None) -> doc.RegimeDocument | None:
    if view is None:
        return None
    return doc.RegimeDocument(
        launches=view.launches,
        duration_us=_duration(view.duration_stats),
        metrics=_metrics(view.metrics),
        diagnosis=_diagnosis(view.diagnosis),
    )


def _device(device: Device) -> doc.DeviceDocument:
    return doc.DeviceDocument(
        device.name, device.compute_capability, device.sm_count, device.l2_bytes
    )


def _source(source: Source) -> doc.SourceDocument:
    return doc.SourceDocument(
        path=source.path,
        format=source.format.value,
        regime=source.regime.value,
        cache_control=source.cache_control,
        clock_control=source.clock_control,
        replay_mode=source.replay_mode,
        ncu_version=source.ncu_version,
    )


def _duration(stats: DurationStats | None) -> doc.DurationDocument | None:
    if stats is None:
        return None
    values = (stats.mean, stats.median, stats.min, stats.max, stats.total)
    return doc.DurationDocument(*map(float, values)) if all(map(isfinite, values)) else None


def _metrics(metrics: Mapping[str, float]) -> doc.Metrics:
    keys = (*REQUIRED_METRICS, *sorted(metrics.keys() - set(REQUIRED_METRICS)))
    return {key: finite(metrics.get(key)) for key in keys}


def _diagnosis(diagnosis: Diagnosis) -> doc.DiagnosisDocument:
    confidence = finite(diagnosis.confidence) or 0.0
    return doc.DiagnosisDocument(
        limiter=diagnosis.limiter.value,
        pipe=diagnosis.pipe,
        confidence=min(1.0, max(0.0, confidence)),
        evidence=[_evidence(e) for e in diagnosis.evidence if isfinite(e.value)],
        flags=[flag.value for flag in diagnosis.flags],
        reuse=None if diagnosis.reuse is None else diagnosis.reuse.value,
        headroom=_headroom(diagnosis.headroom),
        advice=list(diagnosis.advice),
    )


def _evidence(evidence: Evidence) -> doc.EvidenceDocument:
    threshold = finite(evidence.threshold)
    extra: float | UnsetType = UNSET if threshold is None else threshold
    return doc.EvidenceDocument(
        evidence.metric, float(evidence.value), evidence.unit, evidence.meaning, extra
    )


def _headroom(headroom: Headroom | None) -> doc.HeadroomDocument | None:
    if headroom is None or not isfinite(headroom.value):
        return None
    return doc.HeadroomDocument(float(headroom.value), headroom.basis)


def _share(value: float | None) -> float | None:
    """A share without what rounding may have added."""
    share = finite(value)
    return None if share is None else min(1.0, max(0.0, share))


def _pretty(document: doc.Document | list[doc.Document]) -> bytes:
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:  # file names and labels may hold bytes that are no text
        data = json.dumps(_text_only(msgspec.to_builtins(document))).encode()
    return msgspec.json.format(data, indent=2) + b"\n"


def _text_only(value: Any) -> Any:
    """The same with every string valid Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_text_only(key): _text_only(item) for key, item in value.items()}
    return [_text_only(item) for item in value] if isinstance(value, list | tuple) else value
