"""What a study of a product alone leaves a step to choose from."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.records.step_loop import ProductChoice, ProductFound
from kernel_compass.records.trial import Reason, Trial

DILUTION = 3.0
"""A residual stream carries most of a step's output past each product: its own error may be so many
times the step's budget before it is not tried. What the step's outputs are then decides."""
LESS = 0.8
"""Of an error: what differs by less is of one number format."""
_RIGHT = (None, Reason.OUTDONE)


def product_budget_pct(budget_pct: float) -> float:
    """The error that a product alone may have, in percent, by the budget of the step's outputs."""
    return DILUTION * budget_pct


def product_found(study: str, accepted: Trial, trials: Sequence[Trial]) -> ProductFound:
    """What was accepted, and of each smaller error the fastest.

    Args:
        study: its identifier.
        accepted: the study's fastest.
        trials: all of the study.
    """
    finer: list[ProductChoice] = []
    errors = [_error(accepted)]
    for one in sorted(trials, key=_least_speedup, reverse=True):
        if _is_faster(one) and _error(one) < LESS * min(errors):
            errors.append(_error(one))
            finer.append(_choice(one))
    first = _choice(accepted)
    return ProductFound(
        study, first.candidate, first.speedups, first.added_bytes, finer=tuple(finer)
    )


def _choice(trial: Trial) -> ProductChoice:
    speedups = {one.regime.value: one.speedup for one in trial.results}
    return ProductChoice(trial.proposal.candidate, speedups, trial.added_bytes)


def _is_faster(trial: Trial) -> bool:
    """Whether it was right, and faster than the product in each regime that it was timed in."""
    return trial.reason in _RIGHT and bool(trial.results) and _least_speedup(trial) > 1.0


def _least_speedup(trial: Trial) -> float:
    return min((one.speedup.estimate for one in trial.results), default=0.0)


def _error(trial: Trial) -> float:
    """Of its number format; what has none is as exact as the product is."""
    return trial.format_error_pct or 0.0
