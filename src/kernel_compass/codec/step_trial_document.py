"""Trials, entries and findings of a study over a step, as plain values, and back.

A ledger keeps them in rows beside the trials that every study has; a study's document holds them
under `step`.
"""

from __future__ import annotations

from typing import Any

from kernel_compass.codec.canonical import part, plain, record_in, reshaped
from kernel_compass.codec.step_entry import ActionDocument, step_of
from kernel_compass.codec.trial_document import check_interval
from kernel_compass.records.step_action import StepAction, StepTrial
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.trial import Outcome


def action_part(action: StepAction) -> Any:
    """A change in plain values.

    Raises:
        ValueError: it holds what JSON cannot say.
    """
    return part(action, ActionDocument)


def action_of(found: Any) -> StepAction:
    """The change in such a part.

    Raises:
        ValueError: it is none.
    """
    return record_in(found, ActionDocument, StepAction)


def step_trial_part(trial: StepTrial) -> Any:
    """A trial in plain values.

    Raises:
        ValueError: it contradicts itself, or holds a number that is not finite.
    """
    found = plain(trial)
    step_trial_of(found)
    return found


def step_trial_of(found: Any) -> StepTrial:
    """The trial in such a part.

    Raises:
        ValueError: it is none, or contradicts itself.
    """
    action_of(found["proposal"]["action"])
    trial = reshaped(found, StepTrial)
    if trial.number < 1:
        raise ValueError(f"number is {trial.number}")
    passed = trial.outcome in (Outcome.ACCEPTED, Outcome.SCREENED)
    if passed != (trial.reason is None):
        raise ValueError(f"it is {trial.outcome} and its reason is {trial.reason}")
    if trial.speedup is not None:
        check_interval(trial.speedup)
    return trial


def step_study_part(study: StepStudy) -> Any:
    """All that a study over a step holds beside its trials.

    Raises:
        ValueError: it contradicts itself.
    """
    found = plain(study)
    step_study_of(found)
    return found


def step_study_of(found: Any) -> StepStudy:
    """The same from plain values.

    Raises:
        ValueError: they are none.
    """
    for one in found["steps"]:
        step_trial_of(one)
    for one in found["entries"]:
        step_of(one)
    return reshaped(found, StepStudy)
