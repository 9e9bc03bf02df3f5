"""What the rows of a ledger say together."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.codec.dispatch_table import entry_of
from kernel_compass.codec.step_entry import step_of
from kernel_compass.codec.step_trial_document import step_study_of, step_trial_of
from kernel_compass.codec.study_document import study_of
from kernel_compass.codec.trial_document import decode as decode_trial
from kernel_compass.codec.trial_document import proposal_of
from kernel_compass.errors import StudyError
from kernel_compass.optimizer.ledger_file import Row
from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import (
    Interruption,
    PendingTrial,
    RecordedStudy,
    Study,
    StudyState,
    Tell,
)
from kernel_compass.records.trial import Proposal, Trial

STUDY, BEGIN, END, ENTRY, TELL, INTERRUPTED, STATE = (
    "study", "begin", "end", "entry", "tell", "interrupted", "state",
)  # fmt: skip
STEP, STEP_TRIAL, STEP_ENTRY = "step", "step_trial", "step_entry"
"""Kinds of rows."""


@dataclass
class Begun:
    """A trial that was begun."""

    workload: str
    proposal: Proposal
    attempts: int = 0
    in_flight: bool = False
    blamed: int = 0
    """Attempts that ended with the process."""


class Fold:
    """The state after each row; `apply` them in order."""

    def __init__(self) -> None:
        self.study: Study | None = None
        self.begun: dict[int, Begun] = {}
        self.ended: dict[int, Trial] = {}
        self.entries: list[DispatchEntry] = []
        self.tells: list[Tell] = []
        self.interruptions: list[Interruption] = []
        self.first: str | None = None
        self.last: str | None = None
        self.detail = ""
        self.step: StepStudy | None = None

    def apply(self, row: Row) -> None:
        """Take a row in.

        Raises:
            ValueError: it contradicts those before it.
        """
        if (row.kind == STUDY) != (row.sequence == 1):
            raise ValueError(f"row {row.sequence} is of the kind {row.kind!r}")
        apply = getattr(self, f"_apply_{row.kind}", None)
        if apply is None:
            raise ValueError(f"a row is of the kind {row.kind!r}, which is not known")
        try:
            apply(json.loads(row.document), row)
        except (KeyError, TypeError, RecursionError) as error:
            found = f"row {row.sequence} ({row.kind}) is not as it should be: {error!r}"
            raise ValueError(found) from None
        self.first = self.first or row.at
        self.last = row.at

    def recorded(self) -> RecordedStudy:
        """All of it."""
        assert self.study is not None, "the first row is the study"
        return RecordedStudy(
            study=self.study,
            trials=tuple(self.ended[number] for number in sorted(self.ended)),
            entries=tuple(self.entries),
            pending=tuple(self._pending()),
            tells=tuple(self.tells),
            interruptions=tuple(self.interruptions),
            begun=self.first,
            changed=self.last,
            detail=self.detail,
            step=self.step,
        )

    def _pending(self) -> list[PendingTrial]:
        return [
            PendingTrial(number, one.workload, one.proposal, one.attempts)
            for number, one in sorted(self.begun.items())
            if number not in self.ended
        ]

    def _apply_study(self, found: Any, _row: Row) -> None:
        self.study = study_of(found)

    def _apply_begin(self, found: Any, _row: Row) -> None:
        number = found["number"]
        one = self.begun.setdefault(
            number, Begun(found["workload"], proposal_of(found["proposal"]))
        )
        if number in self.ended or one.in_flight or found["attempt"] != one.attempts + 1:
            raise ValueError(f"trial {number} was begun twice")
        one.attempts += 1
        one.in_flight = True

    def _apply_end(self, _found: Any, row: Row) -> None:
        try:
            trial = decode_trial(row.document, f"row {row.sequence}")
        except StudyError as error:
            raise ValueError(error.found.rstrip(".")) from None
        if trial.number in self.ended:
            raise ValueError(f"trial {trial.number} ended twice")
        self.ended[trial.number] = trial
        if trial.number in self.begun:
            self.begun[trial.number].in_flight = False

    def _apply_entry(self, found: Any, _row: Row) -> None:
        entry = entry_of(found)
        if entry.trial not in self.ended:
            raise ValueError(f"an entry is of trial {entry.trial}, which has not ended")
        self.entries.append(entry)

    def _apply_step(self, found: Any, _row: Row) -> None:
        """What was found of the step; each row says all there is but trials and entries."""
        told = step_study_of({**found, "steps": [], "entries": []})
        before = self.step or StepStudy()
        self.step = replace(told, steps=before.steps, entries=before.entries)

    def _apply_step_trial(self, found: Any, _row: Row) -> None:
        trial = step_trial_of(found)
        if trial.number not in self.ended:
            raise ValueError(f"a change is of trial {trial.number}, which has not ended")
        before = self.step or StepStudy()
        self.step = replace(before, steps=(*before.steps, trial))

    def _apply_step_entry(self, found: Any, _row: Row) -> None:
        entry = step_of(found)
        if entry.trial not in self.ended:
            raise ValueError(f"an entry is of trial {entry.trial}, which has not ended")
        before = self.step or StepStudy()
        others = [one for one in before.entries if one.reference != entry.reference]
        self.step = replace(before, entries=(*others, entry))  # confirmed anew, in a larger set

    def _apply_tell(self, found: Any, _row: Row) -> None:
        self.tells.append(Tell(found["stream"], found["index"], found["time_us"]))

    def _apply_interrupted(self, found: Any, _row: Row) -> None:
        number, blamed = found["number"], found["blamed"]
        one = self.begun[number]
        if not one.in_flight or number in self.ended:
            raise ValueError(f"trial {number} was interrupted without having been begun")
        one.in_flight = False
        one.blamed += blamed
        self.interruptions.append(Interruption(number, one.attempts, found["detail"], blamed))

    def _apply_state(self, found: Any, _row: Row) -> None:
        assert self.study is not None, "the first row is the study"
        self.study = replace(self.study, state=StudyState(found["state"]))
        self.detail = found["detail"]
