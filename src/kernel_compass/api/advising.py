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
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import MeasuredLaunch, Precision, Traffic, Workload

BOTH = (Regime.WARM, Regime.COLD)


def advise(
    workloads: Iterable[Workload],
    gpu: str | Calibration | None = None,
    regimes: Sequence[Regime] = BOTH,
    budget_pct: float | None = None,
    measured: Sequence[MeasuredLaunch] = (),
) -> Advice:
    """Which number format can pay for these workloads; estimates, nothing is measured.

    Args:
        workloads: products to advise on.
        gpu: a calibration, the name of a shipped one, a file, or `None` for this machine's.
        regimes: `warm`, `cold`, `in_situ`.
        budget_pct: largest relative error allowed, percent.
        measured: launches timed on that GPU; the estimates of their precisions are fitted to them.

    Raises:
        CalibrationError: there is no such calibration.
        UsageError: a workload has an impossible dimension, or a time is none.
    """
    adviser, notes = _adviser(gpu, regimes, budget_pct, measured)
    advice = adviser.advise(workloads)
    return replace(advice, notes=(*advice.notes, *notes))


def advise_model(
    name: str,
    tokens: Sequence[int] = (1,),
    tp: int = 1,
    gpu: str | Calibration | None = None,
    regimes: Sequence[Regime] = BOTH,
    budget_pct: float | None = None,
    measured: Sequence[MeasuredLaunch] = (),
) -> Advice:
    """The same for every weight product of a model's step, on one of `tp` GPUs.

    Raises:
        CalibrationError: there is no such calibration.
        UsageError: no such model, or it cannot be split like that.
    """
    model = model_named(name)
    check_tp(model, tp)
    adviser, notes = _adviser(gpu, regimes, budget_pct, measured)
    steps = [projections(model, batch, tp) for batch in tokens]
    advice = adviser.advise_model(model.name, tp, steps)
    return replace(advice, notes=(*advice.notes, *notes))


def _adviser(
    gpu: str | Calibration | None,
    regimes: Sequence[Regime],
    budget_pct: float | None,
    measured: Sequence[MeasuredLaunch],
) -> tuple[Adviser, tuple[str, ...]]:
    calibration = gpu if isinstance(gpu, Calibration) else advised_calibration(gpu)
    try:
        estimator, notes = _estimator(calibration, measured)
        return Adviser(calibration, estimator, regimes, budget_pct), notes
    except CalibrationError as error:
        notes = (f"no estimates: {error.found}",)
        return Adviser(calibration, _no_estimate, regimes, budget_pct), notes


def _estimator(
    calibration: Calibration, measured: Sequence[MeasuredLaunch]
) -> tuple[Estimator, tuple[str, ...]]:
    """The latency model, fitted where something was measured, and what the fits say.

    Raises:
        CalibrationError: the calibration lacks a ceiling that the model needs.
    """
    # numpy stays out of the commands that need no estimate
    from kernel_compass.analysis.latency import Ceilings, default_terms, predict
    from kernel_compass.analysis.latency_fit import Probe, fit_terms
    from kernel_compass.analysis.traffic import traffic as moved

    ceilings = Ceilings.of(calibration)
    terms = {precision: default_terms(precision) for precision in Precision}
    notes = []
    for precision in Precision:
        own = [m for m in measured if m.precision is precision]
        if own:
            probes = [Probe(moved(m.workload, precision), m.regime, m.time_us) for m in own]
            fit = fit_terms(probes, ceilings, terms[precision])
            terms[precision] = fit.terms
            notes.append(_fit_note(precision, len(own), fit.held_out_error_pct, fit.identifiable))

    def estimate(traffic: Traffic, precision: Precision, regime: Regime) -> Estimate:
        found = predict(traffic, terms[precision], regime, ceilings)
        return Estimate(found.time_us, found.low_us, found.high_us, str(found.bound))

    return estimate, tuple(notes)


def _fit_note(
    precision: Precision, probes: int, held_out_pct: float | None, identified: Sequence[str]
) -> str:
    error = "" if held_out_pct is None else f", each {held_out_pct:.0f} % off from the others"
    learnt = ", ".join(identified) or "nothing"
    words = "probe" if probes == 1 else "probes"
    return f"{precision}: fitted to {probes} {words}{error}; they narrowed {learnt}"


def _no_estimate(_traffic: Traffic, _precision: Precision, _regime: Regime) -> None:
    return None
