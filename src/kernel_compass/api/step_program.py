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

from kernel_compass.errors import UsageError
from kernel_compass.records.step_program import Program, ProgramKind

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
) -> Program:
    """The program that a user names in one of three ways.

    Raises:
        UsageError: none or several are named, or the file is not there.
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
    program = Program(*named[0], tuple(arguments))
    if program.kind is ProgramKind.ENTRY and not (program.file and program.function):
        raise UsageError(f"--entry {entry} names no function.", "Write --entry FILE.py:FUNCTION.")
    if program.file is not None and not Path(program.file).is_file():
        raise UsageError(f"There is no file {program.file}.", "Name a Python file.")
    return program


def program_files(program: Program) -> list[tuple[Path, str]]:
    """The file that the program starts with and its SHA-256, to be agreed to.

    Raises:
        UsageError: there is no such module, or the file cannot be read.
    """
    path = Path(program.file) if program.file is not None else _module_file(program.target)
    try:
        return [(path, hashlib.sha256(path.read_bytes()).hexdigest())]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _module_file(name: str) -> Path:
    """The file of a module; nothing is imported, as asking Python for it would import packages."""
    parts = Path(*name.split("."))
    for folder in (os.getcwd(), *sys.path):  # noqa: PTH109
        for candidate in (parts / "__main__.py", parts.with_suffix(".py")):
            file = Path(folder) / candidate
            if file.is_file():
                return file
    raise UsageError(f"There is no module {name}.", "Name one as `python -m` does.")
