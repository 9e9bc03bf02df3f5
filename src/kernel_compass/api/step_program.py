"""A user's program and its step: the door of whoever calls the step again.

The program runs in this process, so this process should be one of its own: `capture_program` and
the loop start one.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kernel_compass.access import is_file, unreadable
from kernel_compass.errors import UsageError
from kernel_compass.records.step_program import MOST_INPUTS, Program, ProgramKind

__all__ = ["Program", "ProgramKind", "Step", "open_step", "program_files", "program_of"]


class Step(Protocol):
    """One step of a program that can be called any number of times."""

    @property
    def name(self) -> str:
        """`DecoderBlock.forward`, `decode()`."""

    @property
    def files(self) -> Mapping[str, str]:
        """SHA-256 of the program's own files."""

    def call(self) -> Any:
        """One step with its inputs."""

    def reset(self) -> None:
        """Put back what the step writes, and the state of random numbers."""

    def roots(self) -> Mapping[str, Any]:
        """The step's modules by qualified name; that of the step itself is empty."""


def open_step(program: Program) -> Step:
    """Run a program in this process, to its end, and hold its step.

    Raises:
        MissingDependency: there is no torch.
        UsageError: there is no such file or function.
        ProfilingError: it failed before there was a step, or its step cannot be called again.
    """
    from kernel_compass.profiling.step_held import hold_step

    return hold_step(program)


def program_of(
    script: str | None = None,
    module: str | None = None,
    entry: str | None = None,
    arguments: Sequence[str] = (),
    inputs: str | None = None,
) -> Program:
    """The program that a user names in one of three ways.

    Args:
        script: a file.
        module: as `python -m` takes it.
        entry: `FILE:FUNCTION`.
        arguments: of the program.
        inputs: what outputs are compared on: `FILE:FUNCTION` of an entry, or a number of calls.

    Raises:
        UsageError: none or several are named, the file is not there, or there are no such inputs.
    """
    given = {
        ProgramKind.SCRIPT: script,
        ProgramKind.MODULE: module,
        ProgramKind.ENTRY: entry,
    }
    named = [(kind, target) for kind, target in given.items() if target]
    if len(named) != 1:
        found = "No program is named." if not named else "Several programs are named."
        raise UsageError(found, "Give one of --script FILE, --module NAME, --entry FILE:FUNCTION.")
    program = Program(*named[0], tuple(arguments), _checked_inputs(inputs, named[0][0]))
    if program.kind is ProgramKind.ENTRY and not (program.file and program.function):
        raise UsageError(f"--entry {entry} names no function.", "Write --entry FILE.py:FUNCTION.")
    if program.file is not None and not is_file(Path(program.file)):
        raise UsageError(f"There is no file {program.file}.", "Name a Python file.")
    return program


def _checked_inputs(word: str | None, kind: ProgramKind) -> str:
    """What is said of inputs, where it can be meant.

    Raises:
        UsageError: it is neither a function's name nor a number, or not of such a program.
    """
    if word is None:
        return ""
    file, colon, function = word.rpartition(":")
    if not colon:
        few = word.isascii() and word.isdecimal() and len(word) <= 2
        if not few or not 1 <= int(word) <= MOST_INPUTS:
            found = f"--inputs {word} is neither FILE:FUNCTION nor a number up to {MOST_INPUTS}."
            raise UsageError(found, "Name a function that yields arguments, or say how many calls.")
        return str(int(word))
    if kind is not ProgramKind.ENTRY:
        found = f"--inputs {word}: what a function yields are arguments of an --entry's step."
        raise UsageError(found, "Of a program say how many of its own calls are kept: --inputs 4.")
    if not file or not function:
        raise UsageError(f"--inputs {word} names no function.", "Write --inputs FILE.py:FUNCTION.")
    if not is_file(Path(file)):
        raise UsageError(f"There is no file {file}.", "Write --inputs FILE.py:FUNCTION.")
    return word


def program_files(program: Program) -> list[tuple[Path, str]]:
    """The file that the program starts with and its SHA-256, to be agreed to; then that of its
    inputs, where it is another one.

    Raises:
        UsageError: there is no such module, or the file cannot be read.
    """
    path = Path(program.file) if program.file is not None else _module_file(program.target)
    files = [path, *([Path(program.inputs_file)] if program.inputs_file is not None else [])]
    try:
        found = [(one, hashlib.sha256(one.read_bytes()).hexdigest()) for one in files]
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from None
    return found[:1] if found[0] == found[-1] else found


def _module_file(name: str) -> Path:
    """The file of a module; nothing is imported, as asking Python for it would import packages."""
    parts = Path(*name.split("."))
    for folder in (os.getcwd(), *sys.path):  # noqa: PTH109
        for candidate in (parts / "__main__.py", parts.with_suffix(".py")):
            file = Path(folder) / candidate
            if file.is_file():
                return file
    raise UsageError(f"There is no module {name}.", "Name one as `python -m` does.")
