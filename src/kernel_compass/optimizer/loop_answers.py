"""From what an executor answered to how a trial ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from kernel_compass.records.comparison import Interval
from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.loop import Baseline, RegimeTime
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Outcome, Proposal, Reason, RegimeResult, Trial
from kernel_compass.units import duration_text, speedup_text

CONFIDENCE = 0.95


def baseline_of(workload: str, answer: Mapping[str, Any]) -> Baseline:
    """The baseline that a task measured."""
    return Baseline(
        workload,
        tuple(
            RegimeTime(Regime(one["regime"]), one["time_us"], one["floor_us"])
            for one in answer["regimes"]
        ),
    )


def screened(
    number: int, workload: str, proposal: Proposal, end: TaskEnd, minimum_effect: float
) -> Trial:
    """How a screen ended.

    Args:
        number: of the trial.
        workload: its name.
        proposal: what was tried.
        end: of the task.
        minimum_effect: the least speedup worth the name.
    """
    if end.failure is not None:
        return Trial(
            number,
            workload,
            proposal,
            Outcome.FAILED,
            end.failure.reason,
            end.failure.detail,
            notes=end.notes,
        )
    assert end.answer is not None
    answer, judgement = end.answer, end.answer["judgement"]
    results = tuple(_result(one) for one in answer["regimes"])
    reason, detail = _verdict(answer, results, minimum_effect)
    outcome = Outcome.SCREENED if reason is None else Outcome.REJECTED
    return Trial(
        number,
        workload,
        proposal,
        outcome,
        reason,
        detail,
        results,
        judgement["fidelity_error_pct"],
        judgement["format_error_pct"],
        answer.get("added_bytes"),
        notes=(*judgement.get("unseen", ()), *answer.get("notes", ()), *end.notes),
    )


def gain_of(trial: Trial) -> float | None:
    """Geometric mean of the speedups over its regimes; `None` where it was not timed."""
    if not trial.results:
        return None
    return geometric_mean([one.speedup.estimate for one in trial.results])


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers, at least one."""
    return exp(sum(map(log, values)) / len(values))


def results_text(results: Sequence[RegimeResult]) -> str:
    """`cold 1.31x, warm 1.12x`."""
    return ", ".join(f"{r.regime.value} {speedup_text(r.speedup.estimate)}" for r in results)


def line_of(trial: Trial) -> str:
    """How a trial ended, in a line."""
    c = trial.proposal.candidate
    config = " ".join(f"{key}={value}" for key, value in sorted(c.config.items()) if value != "")
    what = " ".join(filter(None, (c.implementation, c.format, config)))
    verdict = trial.outcome.value if trial.reason is None else trial.reason.value
    said = results_text(trial.results) if trial.reason is None else trial.detail
    return f"{trial.number:>4} {trial.workload}  {what}  {verdict}: {said}"


def _verdict(
    answer: Mapping[str, Any], results: Sequence[RegimeResult], minimum_effect: float
) -> tuple[Reason | None, str]:
    judgement = answer["judgement"]
    if judgement["reason"] is not None:
        return Reason(judgement["reason"]), judgement["detail"]
    if answer.get("timing_failure"):
        return Reason.CANNOT_BE_TIMED, answer["timing_failure"]
    if not results:
        return None, judgement["detail"]
    impossible = too_fast(answer["regimes"])
    if impossible is not None:
        return Reason.FASTER_THAN_HARDWARE, impossible
    least = 1 + minimum_effect
    losing = [one for one in results if one.speedup.estimate < least]
    if losing:
        return Reason.NOT_FASTER, f"{results_text(losing)}; {speedup_text(least)} is the least"
    return None, f"{results_text(results)} in one process"


def too_fast(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Which time no memory of this kind can have served; `None` = none."""
    for one in rows:
        least = one.get("datasheet_us")
        if least is not None and one["candidate_us"] < least:
            return (
                f"{one['regime']}: {duration_text(one['candidate_us'])}, and its bytes need "
                f"{duration_text(least)} at the memory's pins"
            )
    return None


def _result(one: Mapping[str, Any]) -> RegimeResult:
    return RegimeResult(
        Regime(one["regime"]),
        one["incumbent_us"],
        one["candidate_us"],
        Interval(one["estimate"], one["low"], one["high"], one.get("confidence", CONFIDENCE)),
        hold_out=False,
    )
