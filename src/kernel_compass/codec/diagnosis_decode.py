"""Documents of the diagnosis schema as records again. Words of older versions are understood."""

from __future__ import annotations

from msgspec import UnsetType

from kernel_compass.codec import diagnosis_document as doc
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import (
    Diagnosis,
    Evidence,
    Flag,
    Headroom,
    Limiter,
    Reuse,
)
from kernel_compass.records.profile import (
    DurationStats,
    KernelProfile,
    Regime,
    Source,
    SourceFormat,
)
from kernel_compass.records.report import RegimeView, Report, ReportKernel


def report_of(document: doc.Document) -> Report:
    """The report in a document.

    Raises:
        ValueError: another schema, or a word this version does not know.
    """
    if document.schema != doc.SCHEMA:
        raise ValueError(f"its schema is {document.schema!r}")
    device = document.device
    return Report(
        label=document.label,
        device=None
        if device is None
        else Device(device.name, device.compute_capability, device.sm_count, device.l2_bytes),
        sources=tuple(_source(source) for source in document.sources),
        kernels=tuple(_kernel(kernel) for kernel in document.kernels),
        warnings=tuple(document.warnings),
        timeline=None if isinstance(document.timeline, UnsetType) else document.timeline,
        calibration=None if isinstance(document.calibration, UnsetType) else document.calibration,
    )


def _source(source: doc.SourceDocument) -> Source:
    return Source(
        path=source.path,
        format=SourceFormat(source.format),
        regime=Regime(source.regime),
        cache_control=source.cache_control,
        clock_control=source.clock_control,
        replay_mode=source.replay_mode,
        ncu_version=source.ncu_version,
    )


def _kernel(kernel: doc.KernelDocument) -> ReportKernel:
    profile = KernelProfile(
        name=kernel.name,
        grid=kernel.grid,
        block=kernel.block,
        device=None if isinstance(kernel.device, UnsetType) else kernel.device,
        launches=kernel.launches,
        duration_stats=_duration(kernel.duration_us),
        metrics=_metrics(kernel.metrics),
        diagnosis=_diagnosis(kernel.diagnosis),
    )
    regimes = kernel.regimes
    views = (
        None
        if isinstance(regimes, UnsetType)
        else {Regime(name): _view(view) for name, view in regimes.items()}
    )
    timeline = None if isinstance(kernel.timeline, UnsetType) else kernel.timeline
    return ReportKernel(profile, kernel.share_of_time, views, timeline)


def _view(view: doc.RegimeDocument | None) -> RegimeView | None:
    if view is None:
        return None
    return RegimeView(
        launches=view.launches,
        duration_stats=_duration(view.duration_us),
        metrics=_metrics(view.metrics),
        diagnosis=_diagnosis(view.diagnosis),
    )


def _duration(stats: doc.DurationDocument | None) -> DurationStats | None:
    if stats is None:
        return None
    return DurationStats(stats.mean, stats.median, stats.min, stats.max, stats.total)


def _metrics(metrics: doc.Metrics) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if value is not None}


def _diagnosis(diagnosis: doc.DiagnosisDocument) -> Diagnosis:
    headroom = diagnosis.headroom
    return Diagnosis(
        limiter=Limiter(diagnosis.limiter),
        confidence=diagnosis.confidence,
        evidence=tuple(_evidence(item) for item in diagnosis.evidence),
        pipe=diagnosis.pipe,
        flags=tuple(Flag(flag) for flag in diagnosis.flags),
        reuse=None if diagnosis.reuse is None else Reuse(diagnosis.reuse),
        headroom=None if headroom is None else Headroom(headroom.value, headroom.basis),
        advice=tuple(diagnosis.advice),
    )


def _evidence(evidence: doc.EvidenceDocument) -> Evidence:
    threshold = evidence.threshold
    return Evidence(
        metric=evidence.metric,
        value=evidence.value,
        unit=evidence.unit,
        meaning=evidence.meaning,
        threshold=None if isinstance(threshold, UnsetType) else threshold,
    )
