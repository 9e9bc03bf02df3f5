"""Studies that were recorded: listed, shown, exported, taken back out of a dispatch table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_compass.api.step_requests import program_in
from kernel_compass.api.step_unchanged import check_unchanged
from kernel_compass.codec.study_document import canonical
from kernel_compass.errors import StudyError, UsageError, shortened
from kernel_compass.optimizer import dispatch_file
from kernel_compass.optimizer.ledger import read_study
from kernel_compass.optimizer.ledger_home import LAST, find_study, studies_folder, study_folders
from kernel_compass.optimizer.ledger_memory import RejectionMemory
from kernel_compass.records.dispatch import DispatchEntry, DispatchTable
from kernel_compass.records.rejected import RejectedIdea
from kernel_compass.records.step_action import StepEntry
from kernel_compass.records.study import RecordedStudy

MOST_NAMED = 6
"""Studies that an error names."""

__all__ = [
    "Applied",
    "ListedStudy",
    "Reverted",
    "apply_study",
    "export_study",
    "forget_ideas",
    "list_studies",
    "rejected_ideas",
    "revert_study",
    "studies_folder",
    "study",
]


@dataclass(frozen=True)
class ListedStudy:
    """A study's folder with what its ledger says, or why that cannot be read."""

    name: str
    folder: Path
    recorded: RecordedStudy | None
    problem: str | None = None


@dataclass(frozen=True)
class Applied:
    """What was put into a dispatch table."""

    study: str
    table: DispatchTable
    """As it is now."""
    entries: tuple[DispatchEntry, ...]
    """Those of the study, in force or outdone by others."""
    steps: tuple[StepEntry, ...] = ()
    """Changes to a program's step, of a study over one."""


@dataclass(frozen=True)
class Reverted:
    """What was taken out of a dispatch table."""

    table: DispatchTable
    """As it is now; its file is removed where nothing is left."""
    entries: tuple[DispatchEntry, ...]
    steps: tuple[StepEntry, ...] = ()
    """Changes to steps that were taken out."""


def list_studies() -> tuple[ListedStudy, ...]:
    """All studies of this user, the one changed last at the end."""
    found = []
    for folder in study_folders():
        try:
            found.append(ListedStudy(folder.name, folder, read_study(folder)))
        except StudyError as error:
            found.append(ListedStudy(folder.name, folder, None, error.found))
    return tuple(found)


def study(name: str) -> RecordedStudy:
    """One study by its name, the beginning of it, `last`, or its folder.

    Raises:
        StudyError: there is none, or its ledger cannot be used.
    """
    return read_study(find_study(name))


def export_study(name: str) -> bytes:
    """The canonical export: the same bytes for two runs of one recording.

    Raises:
        StudyError: there is none, or its ledger cannot be used.
    """
    return canonical(study(name))


def apply_study(name: str, table: Path) -> Applied:
    """Put what a study accepted into a dispatch table; nothing is run, and twice is as once.

    Args:
        name: of the study, the beginning of it, `last`, or its folder; it need not have ended.
        table: the file; made where there is none.

    Raises:
        StudyError: there is no such study, it accepted nothing, its program is another by now, or
            the table cannot be used.
    """
    recorded = study(name)
    identifier = recorded.study.identifier
    steps = recorded.step.entries if recorded.step else ()
    if not (recorded.entries or steps):
        found = f"The study {identifier} has accepted nothing that a dispatch table can hold."
        raise StudyError(found, f"`kernel-compass show {identifier}` says what came of it.")
    if steps and "program" in recorded.study.request.source.arguments:
        check_unchanged(steps, program_in(recorded.study.request))
    environments = {identifier: recorded.study.environment}
    after = dispatch_file.merge(table, recorded.entries, environments, steps)
    return Applied(identifier, after, recorded.entries, steps)


def revert_study(reference: str, table: Path) -> Reverted:
    """Take what a study, or a trial of it, contributed out of a dispatch table.

    Args:
        reference: `STUDY` or `STUDY:TRIAL`; the study's ledger need not be on this machine.
        table: the file; the table is again what it was before, to the byte.

    Raises:
        UsageError: the reference is none.
        StudyError: nothing in the table is of it; or the file cannot be used.
    """
    name, trial = _reference(reference)
    before = _table_there(name, table)
    known = {one.study for one in before.all_entries}
    meant = _known(name, known)
    if meant not in known:
        held = sorted({one.reference for one in before.all_entries})
        listed = ", ".join(held[:MOST_NAMED]) + " ..." * (len(held) > MOST_NAMED)
        raise StudyError(
            f"Nothing in {table} is of {shortened(name)}: it holds {listed}. "
            f"{_studies_there(meant)}",
            "Name one that the table holds; `kernel-compass history` lists studies.",
        )
    after, taken = dispatch_file.revert(table, meant, trial)
    entries = tuple(one for one in taken if isinstance(one, DispatchEntry))
    return Reverted(after, entries, tuple(one for one in taken if isinstance(one, StepEntry)))


def rejected_ideas() -> tuple[RejectedIdea, ...]:
    """What was rejected in any study, the latest last.

    Raises:
        StudyError: the memory cannot be used.
    """
    return RejectionMemory().all()


def forget_ideas(
    implementation: str | None = None,
    workload: str | None = None,
    study: str | None = None,
    everything: bool = False,
) -> int:
    """Forget rejections, so that the ideas are tried again; how many.

    Raises:
        UsageError: it is not said which.
        StudyError: the memory cannot be used.
    """
    return RejectionMemory().forget(implementation, workload, study, everything)


def _reference(text: str) -> tuple[str, int | None]:
    name, colon, number = text.partition(":")
    if not colon and name:
        return name, None
    if not name or not number.isascii() or not number.isdecimal() or len(number) > 9:
        found = f"{shortened(text)!r} names no study or trial."
        raise UsageError(found, "Write STUDY or STUDY:TRIAL, for example `last:3`.")
    return name, int(number)


def _table_there(name: str, table: Path) -> DispatchTable:
    """The table that something is to be taken out of.

    Raises:
        StudyError: there is none, or it cannot be used.
    """
    try:
        table.lstat()
    except FileNotFoundError:
        found = f"There is no dispatch table {shortened(str(table))}. {_studies_there(name)}"
        raise StudyError(
            found,
            "Name the table: --table FILE. `kernel-compass history` lists studies, and "
            "`kernel-compass apply STUDY --table FILE` puts one into a table.",
        ) from None
    except OSError:
        pass  # reading it says why
    return dispatch_file.read_table(table)


def _studies_there(name: str) -> str:
    """Whether a study of this name was recorded here, and which were."""
    try:
        there = [one.name for one in study_folders()]
    except StudyError as error:
        return error.found
    if name in there:
        return f"The study {name} is recorded here; it was never put there, or taken out again."
    named = f"No study {shortened(name)!r} is recorded in {studies_folder()}"
    if not there:
        return f"{named}, nor any other."
    last = ", ".join(there[-MOST_NAMED:][::-1])
    return f"{named}; those there, the latest first: {last}{' ...' * (len(there) > MOST_NAMED)}."


def _known(name: str, known: set[str]) -> str:
    """The study of the table that a name means."""
    near = sorted(one for one in known if one.startswith(name))
    if name in known or (not near and name != LAST):
        return name
    if name == LAST:
        return study(name).study.identifier
    return _only(name, near)


def _only(name: str, near: Sequence[str]) -> str:
    if len(near) == 1:
        return near[0]
    found = f"{shortened(name)!r} is the beginning of {len(near)} studies: {', '.join(near)}."
    raise StudyError(found, "Write more of its name.")
