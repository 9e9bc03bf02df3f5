"""The ledger of a study: what was begun is committed before it runs, what was found after it.

A kill at any instant loses at most the trials in flight. When the study is opened again, each of
those is marked as interrupted and tried again once; a second time it is blamed, and has failed.
An acceptance is on the disk before `end` returns.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kernel_compass.codec.trial_document import encode_line
from kernel_compass.errors import StudyError
from kernel_compass.optimizer import ledger_file, ledger_rows
from kernel_compass.optimizer.ledger_file import Row, sqlite_errors
from kernel_compass.optimizer.ledger_fold import Fold
from kernel_compass.optimizer.ledger_home import LEDGER, folder_of
from kernel_compass.optimizer.ledger_lock import WriterLock, unwritable, writer_of
from kernel_compass.optimizer.ledger_rows import Found, misuse
from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.step_action import StepEntry, StepTrial
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import RecordedStudy, Study, StudyState, Tell
from kernel_compass.records.trial import Outcome, Proposal, Trial


class Ledger:
    """A study that this process writes. Threads may share it; forked processes may not.

    Made by `create` or `resume`; a context manager that closes it.
    """

    def __init__(self, folder: Path, lock: WriterLock, fold: Fold, last: Row) -> None:
        self.folder = folder
        self.path = folder / LEDGER
        self._lock = lock
        self._fold = fold
        self._last = last
        self._turn = threading.RLock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = ledger_file.opened(self.path)
        self._file = self.path.stat().st_ino

    @classmethod
    def create(cls, study: Study, folder: Path | None = None) -> Ledger:
        """Start the ledger of a new study.

        Args:
            study: its state counts as running.
            folder: where; default: the study's place in the user's data folder.

        Raises:
            StudyError: there is one already, or it cannot be written.
        """
        folder = folder_of(study.identifier) if folder is None else folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from None
        lock = WriterLock(folder)
        try:
            if os.path.lexists(folder / LEDGER):
                raise StudyError(
                    f"There is a study in {folder} already.",
                    f"Resume it: `kernel-compass optimize --resume {folder.name}`.",
                )
            first = ledger_rows.first_row(study)
            ledger_file.build(folder / LEDGER, first)
            fold = Fold()
            fold.apply(first)
            return cls(folder, lock, fold, first)
        except ValueError as error:
            lock.release()
            found = f"The study {study.identifier!r} cannot be recorded: {error}."
            raise StudyError(found, "Mend what is asked for; nothing was written.") from None
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume(cls, folder: Path) -> Ledger:
        """Go on with a study: trials in flight are marked as interrupted, or blamed.

        Args:
            folder: of the study.

        Raises:
            StudyError: there is none, another process writes it, or it cannot be used; it is then
                as it was.
        """
        if not folder.is_dir():
            found = f"There is no study in {folder}."
            raise StudyError(found, "`kernel-compass history` lists those that are there.")
        lock = WriterLock(folder)
        try:
            path = folder / LEDGER
            fold, last = _read(path, in_place=False)
            if ledger_file.version_of(path) < ledger_file.VERSION:
                ledger_file.migrate(path)
                fold, last = _read(path, in_place=False)
            ledger = cls(folder, lock, fold, last)
        except BaseException:
            lock.release()
            raise
        try:
            ledger._take_up()
        except BaseException:
            ledger.close()
            raise
        return ledger

    @property
    def recorded(self) -> RecordedStudy:
        """Everything that was recorded so far."""
        with self._turn:
            return self._fold.recorded()

    def begin(self, number: int, workload: str, proposal: Proposal) -> int:
        """Record that a trial is about to run; committed when this returns.

        Args:
            number: a new one (`recorded.next_number`), or a pending trial's.
            workload: what is tried.
            proposal: the candidate, and why.

        Returns:
            Which attempt it is, from 1.

        Raises:
            StudyError: it ended or runs already; or it cannot be written.
        """
        with self._turn:
            known = self._fold.begun.get(number)
            if number in self._fold.ended or (known is not None and known.in_flight):
                raise misuse(f"Trial {number} has been begun already")
            if known is not None and (known.workload, known.proposal) != (workload, proposal):
                raise misuse(f"Trial {number} was begun with another candidate or workload")
            attempt = 1 if known is None else known.attempts + 1
            self._add([ledger_rows.begun(number, attempt, workload, proposal)])
            return attempt

    def end(
        self,
        trial: Trial,
        entries: Sequence[DispatchEntry] = (),
        tells: Sequence[Tell] = (),
        step: StepTrial | None = None,
        step_entries: Sequence[StepEntry] = (),
    ) -> None:
        """Record how a trial ended, at once with what follows from it: all of it, or nothing.

        Args:
            trial: begun before; one that was not tried (`cannot_pay`, `remembered`, ...) need not
                be.
            entries: of an accepted trial, for a dispatch table.
            tells: what a search strategy is told of it.
            step: of a study over a step: the change that the trial was, with all that was found.
            step_entries: of the trial that accepted a step's changes, for a dispatch table.

        Raises:
            StudyError: it has ended already, was accepted without having been begun, or cannot be
                written.
        """
        with self._turn:
            self._check_end(trial, entries)
            found = ledger_rows.ended(trial, entries, tells, step, step_entries)
            self._add(found, sure=trial.outcome is Outcome.ACCEPTED)

    def note_step(self, step: StepStudy) -> None:
        """Record what is known of a step, its trials and entries apart; the last one counts.

        Raises:
            StudyError: it cannot be written.
        """
        with self._turn:
            self._add([ledger_rows.of_step(step)])

    def tell(self, tell: Tell) -> None:
        """Record what a search strategy was told.

        Raises:
            StudyError: it cannot be written.
        """
        with self._turn:
            self._add([ledger_rows.told(tell)])

    def release(self, number: int, detail: str) -> None:
        """Give up a trial in flight that is not to blame: the user stopped the run, say.

        Raises:
            StudyError: it is not in flight, or it cannot be written.
        """
        with self._turn:
            known = self._fold.begun.get(number)
            if known is None or not known.in_flight:
                raise misuse(f"Trial {number} is not in flight")
            self._add([ledger_rows.interrupted(number, known, detail, blamed=False)])

    def set_state(self, state: StudyState, detail: str = "") -> None:
        """Record how far the study got; on the disk when this returns.

        Raises:
            StudyError: it cannot be written.
        """
        if state is StudyState.INTERRUPTED:
            raise misuse("That a study was interrupted is found, not recorded")
        with self._turn:
            self._add([ledger_rows.of_state(state, detail)], sure=True)

    def close(self) -> None:
        """Let others write; once is enough. The state stays what it was last set to."""
        with self._turn:
            connection, self._connection = self._connection, None
            if self._process != os.getpid():
                return  # a fork's copy: closing it would drop the owner's locks
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()
                self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take_up(self) -> None:
        """What was in flight when the last process ended."""
        self._add(ledger_rows.taken_up(self._fold), sure=True)

    def _check_end(self, trial: Trial, entries: Sequence[DispatchEntry]) -> None:
        number = trial.number
        known = self._fold.begun.get(number)
        accepted = trial.outcome is Outcome.ACCEPTED
        if number in self._fold.ended:
            raise misuse(f"Trial {number} has ended already")
        if (known is None and accepted) or (known is not None and not known.in_flight):
            raise misuse(f"Trial {number} ends without having been begun")
        if known and (known.workload, known.proposal) != (trial.workload, trial.proposal):
            raise misuse(f"Trial {number} was begun with another candidate or workload")
        if entries and not accepted:
            raise misuse(f"Trial {number} was not accepted and has entries")
        assert self._fold.study is not None, "the first row is the study"
        study = self._fold.study.identifier
        if any((one.study, one.trial) != (study, number) for one in entries):
            raise misuse(f"An entry is not of trial {number} of the study {study!r}")

    def _add(self, found: Sequence[Found], sure: bool = False) -> None:
        """Add rows, all or none of them; `sure` = they are on the disk when this returns."""
        connection = self._writable()
        rows = ledger_rows.rows_after(self._last, found)
        with sqlite_errors(self.path):
            connection.execute(f"PRAGMA synchronous = {'FULL' if sure else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                for row in rows:
                    ledger_file.insert(connection, row)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        for row in rows:
            self._fold.apply(row)
        self._last = rows[-1]

    def _writable(self) -> sqlite3.Connection:
        if self._process != os.getpid():
            raise misuse("A ledger cannot be written by a process that was forked from its owner")
        if self._connection is None:
            raise misuse("The ledger is closed")
        try:
            same = self.path.stat().st_ino == self._file
        except OSError:
            same = False
        if not same:
            raise StudyError(
                f"{self.path} was removed or replaced while it was being written.",
                "What is recorded from now on would be lost, so the run ends here; start a new "
                "study.",
            )
        return self._connection


def read_study(folder: Path) -> RecordedStudy:
    """What the ledger of a study says; writes nothing, and may be called while another writes.

    Raises:
        StudyError: there is none, or it cannot be used.
    """
    if not folder.is_dir():
        found = f"There is no study in {folder}."
        raise StudyError(found, "`kernel-compass history` lists those that are there.")
    written = writer_of(folder) is not None
    recorded = _read(folder / LEDGER, in_place=written)[0].recorded()
    if recorded.study.state is StudyState.RUNNING and not written:
        study = replace(recorded.study, state=StudyState.INTERRUPTED)
        return replace(recorded, study=study)
    return recorded


def trial_sha256(trial: Trial) -> str:
    """What a dispatch table refers to a trial's record by."""
    return hashlib.sha256(encode_line(trial)).hexdigest()


def _read(path: Path, in_place: bool) -> tuple[Fold, Row]:
    rows = ledger_file.rows_of(path, in_place)
    fold = Fold()
    try:
        for row in rows:
            fold.apply(row)
    except ValueError as error:
        raise ledger_file.of_another_version(path, rows[0], str(error)) from None
    return fold, rows[-1]
