"""Whether what a study over a step was about is what it was: files, packages, machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_compass.api.actions.finding import changed_file, changed_package, paths_of
from kernel_compass.api.step_requests import NEW_STUDY
from kernel_compass.errors import StudyError
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_action import StepEntry
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_program import Program, ProgramKind
from kernel_compass.records.step_study import StepStudy


def check_same_step(before: StepStudy | None, now: StepCapture) -> None:
    """That a step goes through the files and packages that it went through.

    Args:
        before: as a study found it; older ones say nothing of files.
        now: captured anew.

    Raises:
        StudyError: one of them is another by now.
    """
    if before is None:
        return
    for name, digest in before.files.items():
        if name not in now.files:
            raise StudyError(f"The program does not load {name} any more.", NEW_STUDY)
        if now.files[name] != digest:
            raise StudyError(f"{name} was changed since the study was begun.", NEW_STUDY)
    for name, version in before.packages.items():
        if name in now.packages and now.packages[name] != version:
            found = f"{name} was {version} when the study was begun, and is {now.packages[name]}."
            raise StudyError(found, NEW_STUDY)


def check_unchanged(entries: Iterable[StepEntry], program: Program) -> None:
    """That accepted changes still are of this program; nothing is run.

    Args:
        entries: with the files and packages that they depend on.
        program: where it lay; on another machine, and of a module, nothing can be said.

    Raises:
        StudyError: a file that is found there, or a package, is another by now.
    """
    file = Path(program.file or "")
    if program.kind is ProgramKind.MODULE or not (file.is_absolute() and file.is_file()):
        return
    for one in entries:
        there = {name: digest for name, digest in one.files.items() if paths_of(name, file.parent)}
        changed = changed_file(there, file.parent) or changed_package(one.packages)
        if changed is not None:
            found = f"What the study accepted holds no more: {changed}."
            raise StudyError(found, "Start a new study, or put back what it was about.")


def check_same_machine(before: Environment, now: Environment) -> None:
    """That GPU and versions are those of the study.

    Raises:
        StudyError: they are not.
    """
    rows = {
        "GPU": (before.device.name, now.device.name),
        "torch": (before.torch, now.torch),
        "triton": (before.triton, now.triton),
        "kernel-compass": (before.kernel_compass, now.kernel_compass),
    }
    other = [f"{name} was {a} and is {b}" for name, (a, b) in rows.items() if a != b]
    if other:
        found = f"The study was begun elsewhere: {'; '.join(other)}."
        raise StudyError(found, NEW_STUDY)
