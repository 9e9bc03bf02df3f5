"""Advice as a `kernel-compass/advice/1` document, and back."""

from __future__ import annotations

from importlib.resources import files
from math import isfinite
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kernel_compass.codec import advice_document as doc
from kernel_compass.codec.advice_document import SCHEMA
from kernel_compass.codec.diagnosis_document import DeviceDocument
from kernel_compass.codec.finite import finite
from kernel_compass.codec.json_reading import read_json
from kernel_compass.errors import UsageError
from kernel_compass.records.advice import (
    Advice,
    CacheFit,
    ErrorGuide,
    Estimate,
    FloorEstimate,
    FormatAdvice,
    RegimeAdvice,
    StepTotal,
    Verdict,
    WorkloadAdvice,
)
from kernel_compass.records.calibration import Basis
from kernel_compass.records.device import Device
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Workload


def encode(advice: Advice) -> bytes:
    """Advice as an indented UTF-8 JSON object with a final newline; all numbers finite."""
    return msgspec.json.format(msgspec.json.encode(_document(advice)), indent=2) + b"\n"


def decode(data: bytes | str) -> Advice:
    """The advice that a document holds.

    Raises:
        UsageError: it is no such document.
    """
    try:
        return _advice(read_json(data, doc.AdviceDocument))
    except ValueError as error:
        found = f"This is not a {SCHEMA} document: {error}."
        raise UsageError(found, "Write one with `kernel-compass advise ... --json`.") from None


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the documents."""
    text = files("kernel_compass.codec").joinpath("schemas/advice-1.schema.json").read_bytes()
    result: dict[str, Any] = msgspec.json.decode(text)
    return result


def _document(advice: Advice) -> doc.AdviceDocument:
    d = advice.device
    return doc.AdviceDocument(
        schema=SCHEMA,
        calibration=advice.calibration,
        device=DeviceDocument(d.name, d.compute_capability, d.sm_count, d.l2_bytes),
        launch_mode=advice.launch_mode.value,
        budget_pct=advice.budget_pct,
        model=advice.model,
        tp=advice.tp,
        workloads=[_workload_document(w) for w in advice.workloads],
        totals=[
            doc.TotalDocument(
                t.tokens, t.regime.value, t.precision.value, finite(t.estimate_us), t.floor_us
            )
            for t in advice.totals
        ],
        notes=list(advice.notes),
    )


def _workload_document(advice: WorkloadAdvice) -> doc.WorkloadAdviceDocument:
    w = advice.workload
    return doc.WorkloadAdviceDocument(
        doc.WorkloadDocument(w.op.value, w.heads, w.tokens, w.reduction, w.columns, w.name),
        advice.layers,
        advice.sharded,
        advice.assumption,
        [
            doc.RegimeDocument(r.regime.value, [_format_document(f) for f in r.formats])
            for r in advice.regimes
        ],
    )


def _format_document(f: FormatAdvice) -> doc.FormatDocument:
    bottom, e = f.floor, _finite_estimate(f.estimate)
    return doc.FormatDocument(
        precision=f.precision.value,
        weight_bytes=f.weight_bytes,
        working_set_bytes=f.working_set_bytes,
        cache_fit=f.fit.value,
        floor=None
        if bottom is None
        else doc.FloorDocument(
            bottom.time_us, bottom.high_us, bottom.bound, bottom.basis.value, list(bottom.notes)
        ),
        estimate=None
        if e is None
        else doc.EstimateDocument(e.time_us, e.low_us, e.high_us, e.bound),
        at_most=finite(f.at_most),
        errors=[doc.ErrorDocument(g.format, g.relative_pct) for g in f.errors],
        within_budget=f.within_budget,
        verdict=f.verdict and f.verdict.value,
        reason=f.reason,
        l2_flops_per_byte=_or_unset(f.l2_flops_per_byte),
        dram_flops_per_byte=_or_unset(f.dram_flops_per_byte),
    )


def _or_unset(value: float | None) -> float | UnsetType:
    return UNSET if value is None or not isfinite(value) else value


def _or_none(value: float | UnsetType) -> float | None:
    return None if isinstance(value, UnsetType) else value


def _finite_estimate(estimate: Estimate | None) -> Estimate | None:
    if estimate is None:
        return None
    values = (estimate.time_us, estimate.low_us, estimate.high_us)
    return estimate if all(map(isfinite, values)) else None


def _advice(document: doc.AdviceDocument) -> Advice:
    if document.schema != SCHEMA:
        raise ValueError(f"its schema is {document.schema!r}")
    d = document.device
    return Advice(
        calibration=document.calibration,
        device=Device(d.name, d.compute_capability, d.sm_count, d.l2_bytes),
        launch_mode=LaunchMode(document.launch_mode),
        workloads=tuple(_workload(w) for w in document.workloads),
        budget_pct=document.budget_pct,
        model=document.model,
        tp=document.tp,
        totals=tuple(
            StepTotal(t.tokens, Regime(t.regime), Precision(t.precision), t.estimate_us, t.floor_us)
            for t in document.totals
        ),
        notes=tuple(document.notes),
    )


def _workload(document: doc.WorkloadAdviceDocument) -> WorkloadAdvice:
    w = document.workload
    return WorkloadAdvice(
        workload=Workload(Op(w.op), w.heads, w.tokens, w.reduction, w.columns, w.name),
        regimes=tuple(
            RegimeAdvice(Regime(r.regime), tuple(_format(f) for f in r.formats))
            for r in document.regimes
        ),
        layers=document.layers,
        sharded=document.sharded,
        assumption=document.assumption,
    )


def _format(f: doc.FormatDocument) -> FormatAdvice:
    bottom, e = f.floor, f.estimate
    return FormatAdvice(
        precision=Precision(f.precision),
        weight_bytes=f.weight_bytes,
        working_set_bytes=f.working_set_bytes,
        fit=CacheFit(f.cache_fit),
        floor=None
        if bottom is None
        else FloorEstimate(
            bottom.time_us, bottom.high_us, bottom.bound, Basis(bottom.basis), tuple(bottom.notes)
        ),
        estimate=None if e is None else Estimate(e.time_us, e.low_us, e.high_us, e.bound),
        at_most=f.at_most,
        errors=tuple(ErrorGuide(g.format, g.relative_pct) for g in f.errors),
        within_budget=f.within_budget,
        verdict=None if f.verdict is None else Verdict(f.verdict),
        reason=f.reason,
        l2_flops_per_byte=_or_none(f.l2_flops_per_byte),
        dram_flops_per_byte=_or_none(f.dram_flops_per_byte),
    )
