"""Advice without a GPU: wires calibrations and the latency model to the analysis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kernel_compass.analysis.advising import Adviser, Estimator
from kernel_compass.analysis.models import check_tp, model_named, projections
from kernel_compass.api.calibration_choice import advised_calibration
from kernel_compass.errors import CalibrationError
from kernel_compass.records.advice import Advice, Estimate
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision, Traffic, Workload

BOTH = (Regime.WARM, Regime.COLD)


def advise(
    workloads: Iterable[Workload],
    gpu: str | Calibration | None = None,
    regimes: Sequence[Regime] = BOTH,
    budget_pct: float | None = None,
) -> Advice:
    """Which number format can pay for these workloads; estimates, nothing is measured.

    Args:
        workloads: products to advise on.
        gpu: a calibration, the name of a shipped one, a file, or `None` for this machine's.
        regimes: `warm`, `cold`, `in_situ`.
        budget_pct: largest relative error allowed, percent.

    Raises:
        CalibrationError: there is no such calibration.
        UsageError: a workload has an impossible dimension.
    """
    adviser, notes = _adviser(gpu, regimes, budget_pct)
    advice = adviser.advise(workloads)
    return replace(advice, notes=(*advice.notes, *notes))


def advise_model(
    name: str,
    tokens: Sequence[int] = (1,),
    tp: int = 1,
    gpu: str | Calibration | None = None,
    regimes: Sequence[Regime] = BOTH,
    budget_pct: float | None = None,
) -> Advice:
    """The same for every weight product of a model's step, on one of `tp` GPUs.

    Raises:
        CalibrationError: there is no such calibration.
        UsageError: no such model, or it cannot be split like that.
    """
    model = model_named(name)
    check_tp(model, tp)
    adviser, notes = _adviser(gpu, regimes, budget_pct)
    steps = [projections(model, batch, tp) for batch in tokens]
    advice = adviser.advise_model(model.name, tp, steps)
    return replace(advice, notes=(*advice.notes, *notes))


def _adviser(
    gpu: str | Calibration | None, regimes: Sequence[Regime], budget_pct: float | None
) -> tuple[Adviser, tuple[str, ...]]:
    calibration = gpu if isinstance(gpu, Calibration) else advised_calibration(gpu)
    try:
        return Adviser(calibration, _estimator(calibration), regimes, budget_pct), ()
    except CalibrationError as error:
        notes = (f"no estimates: {error.found}",)
        return Adviser(calibration, _no_estimate, regimes, budget_pct), notes


def _estimator(calibration: Calibration) -> Estimator:
    """The latency model for kernels nobody has probed.

    Raises:
        CalibrationError: the calibration lacks a ceiling that the model needs.
    """
    # numpy stays out of the commands that need no estimate
    from kernel_compass.analysis.latency import Ceilings, default_terms, predict

    ceilings = Ceilings.of(calibration, LaunchMode.GRAPH)

    def estimate(traffic: Traffic, precision: Precision, regime: Regime) -> Estimate:
        found = predict(traffic, default_terms(precision), regime, ceilings)
        return Estimate(found.time_us, found.low_us, found.high_us, str(found.bound))

    return estimate


def _no_estimate(_traffic: Traffic, _precision: Precision, _regime: Regime) -> None:
    return None
