"""What happens in a study, as the rows that its ledger gets: kind, key and document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kernel_compass.codec.canonical import compact, plain
from kernel_compass.codec.dispatch_table import entry_part
from kernel_compass.codec.step_entry import step_part
from kernel_compass.codec.step_trial_document import step_study_part, step_trial_part
from kernel_compass.codec.study_document import study_part
from kernel_compass.codec.trial_document import encode_line, proposal_part
from kernel_compass.errors import StudyError
from kernel_compass.optimizer import ledger_fold
from kernel_compass.optimizer.ledger_file import Row, chained
from kernel_compass.optimizer.ledger_fold import Begun, Fold
from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.step_action import StepEntry, StepTrial
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import Study, StudyState, Tell
from kernel_compass.records.trial import Outcome, Proposal, Reason, Trial

MOST_BLAMED = 2
"""Times that the process may end while a trial is in flight until the trial is to blame."""
Found = tuple[str, str, Any]
"""Kind, key and document of a row that is to be added; what may happen any number of times has no
key of its own."""


def first_row(study: Study) -> Row:
    """The row that a ledger begins with.

    Raises:
        ValueError: it cannot be written.
    """
    document = _text(study_part(replace(study, state=StudyState.RUNNING)))
    return chained("", 1, ledger_fold.STUDY, "", document, _now())


def rows_after(last: Row, found: Sequence[Found]) -> list[Row]:
    """Rows that follow a last one, of one moment."""
    rows, at = [], _now()
    for kind, key, document in found:
        number = last.sequence + 1
        last = chained(last.digest, number, kind, key or str(number), _text(document), at)
        rows.append(last)
    return rows


def begun(number: int, attempt: int, workload: str, proposal: Proposal) -> Found:
    """That a trial is about to run."""
    try:
        proposed = proposal_part(proposal)
    except ValueError as error:
        raise misuse(f"Trial {number} cannot be recorded: {error}") from None
    document = {"number": number, "attempt": attempt, "workload": workload}
    return ledger_fold.BEGIN, f"{number}/{attempt}", {**document, "proposal": proposed}


def ended(
    trial: Trial,
    entries: Sequence[DispatchEntry],
    tells: Sequence[Tell],
    step: StepTrial | None,
    step_entries: Sequence[StepEntry],
) -> list[Found]:
    """How a trial ended, with what follows from it: see `Ledger.end`."""
    number = str(trial.number)
    found: list[Found] = [(ledger_fold.END, number, encode_line(trial))]
    for index, entry in enumerate(entries):
        found.append((ledger_fold.ENTRY, f"{number}/{index}", _part(entry)))
    found += [told(tell) for tell in tells]
    if step is not None:
        found.append((ledger_fold.STEP_TRIAL, number, _step_part(step)))
    for index, one in enumerate(step_entries):
        found.append((ledger_fold.STEP_ENTRY, f"{number}/{index}", _step_part(one)))
    return found


def of_step(step: StepStudy) -> Found:
    """What is known of a step, its trials and entries apart."""
    try:
        part = step_study_part(replace(step, steps=(), entries=()))
    except ValueError as error:
        raise misuse(f"What the step is cannot be recorded: {error}") from None
    del part["steps"], part["entries"]
    return ledger_fold.STEP, "", part


def told(tell: Tell) -> Found:
    """What a search strategy was told."""
    try:
        return ledger_fold.TELL, "", plain(tell)
    except ValueError as error:
        raise misuse(f"What {tell.stream} was told cannot be recorded: {error}") from None


def of_state(state: StudyState, detail: str) -> Found:
    """How far the study got."""
    return ledger_fold.STATE, "", {"state": state.value, "detail": detail}


def interrupted(number: int, one: Begun, detail: str, blamed: bool) -> Found:
    """That a trial in flight was given up."""
    document = {"number": number, "detail": detail, "blamed": blamed}
    return ledger_fold.INTERRUPTED, f"{number}/{one.attempts}", document


def taken_up(fold: Fold) -> list[Found]:
    """What was in flight when the last process ended: interrupted, and a second time to blame."""
    found: list[Found] = []
    for number, one in sorted(fold.begun.items()):
        if not one.in_flight or number in fold.ended:
            continue
        detail = f"the run ended during attempt {one.attempts}"
        found.append(interrupted(number, one, detail, blamed=True))
        if one.blamed + 1 >= MOST_BLAMED:
            found.append((ledger_fold.END, str(number), encode_line(_blamed(number, one))))
    return [*found, of_state(StudyState.RUNNING, "resumed")]


def misuse(found: str) -> StudyError:
    """The error for what no user can mend."""
    return StudyError(f"{found}.", "This is a bug of what writes the ledger; report it.")


def _blamed(number: int, one: Begun) -> Trial:
    return Trial(
        number=number,
        workload=one.workload,
        proposal=one.proposal,
        outcome=Outcome.FAILED,
        reason=Reason.CRASHED,
        detail=f"the whole run ended {MOST_BLAMED} times while it was tried",
    )


def _step_part(found: StepTrial | StepEntry) -> Any:
    try:
        if isinstance(found, StepEntry):
            return step_part(found)
        return step_trial_part(found)
    except ValueError as error:
        raise misuse(f"A change cannot be recorded: {error}") from None


def _part(entry: DispatchEntry) -> Any:
    try:
        return entry_part(entry)
    except ValueError as error:
        raise misuse(f"An entry of trial {entry.trial} cannot be recorded: {error}") from None


def _text(document: Any) -> str:
    return (document if isinstance(document, bytes) else compact(document)).decode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
