"""What the user asked to profile, as an argv; and options that belong to the target."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Container, Sequence
from pathlib import Path

from kernel_compass.errors import UsageError

MODULE_OPTIONS = ("-m", "--module")


def command_of(module: str | None, words: Sequence[str]) -> tuple[str, ...]:
    """The target's argv.

    Args:
        module: the module of `-m`, run by this Python.
        words: the script and its arguments, or the module's arguments.

    Raises:
        UsageError: there is no such program.
    """
    if module is not None:
        return (sys.executable, "-m", module, *_arguments(words))
    if not words:
        raise UsageError("Nothing to profile was named.", "kernel-compass profile SCRIPT [-- ARGS]")
    return (*_program(words[0]), *_arguments(words[1:]))


def end_options_after_module(args: Sequence[str], with_value: Container[str]) -> list[str]:
    """The same words with `--` after `-m MODULE`, so that the rest goes to the module.

    Args:
        args: the words of the command line after `profile`.
        with_value: the options that take the next word as their value.
    """
    i = 0
    while i < len(args):
        word = args[i]
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word in MODULE_OPTIONS:
            return [*args[: i + 2], "--", *args[i + 2 :]] if i + 1 < len(args) else list(args)
        if word.startswith("--module=") or (word.startswith("-m") and len(word) > 2):
            return [*args[: i + 1], "--", *args[i + 1 :]]
        i += 2 if word in with_value else 1
    return list(args)


def misplaced_options(words: Sequence[str], options: Container[str]) -> list[str]:
    """Options of ours behind SCRIPT, which the script gets; none where `--` says it is meant."""
    behind = words[1:]
    if "--" in behind:
        return []
    return [word for word in behind if word.split("=")[0] in options]


def _arguments(words: Sequence[str]) -> Sequence[str]:
    """The target's arguments; a first `--` only separates."""
    return words[1:] if words[:1] == ["--"] or words[:1] == ("--",) else words


def _program(name: str) -> tuple[str, ...]:
    """How a script or program is started."""
    path = Path(name)
    if path.is_dir():
        if (path / "__main__.py").is_file():
            return (sys.executable, name)
        raise UsageError(f"{name} is a folder.", "Name a script, or a module with -m MODULE.")
    if path.is_file():
        if path.suffix in (".py", ".pyc") or not os.access(path, os.X_OK):
            return _script(path)
        return (name if os.sep in name else f".{os.sep}{name}",)
    found = shutil.which(name)
    if found is None:
        remedy = "Name a Python script, an executable, or a module with -m MODULE."
        raise UsageError(f"There is no file and no program {name!r}.", remedy)
    return (found,)


def _script(path: Path) -> tuple[str, ...]:
    """A file without execute permission: Python's if it can be, else an error."""
    with path.open("rb") as file:
        start = file.read(4096)
    first = start.split(b"\n", 1)[0]
    if path.suffix not in (".py", ".pyc") and (
        b"\0" in start or (first.startswith(b"#!") and b"python" not in first)
    ):
        raise UsageError(f"{path} is not executable.", f"chmod +x {path}")
    return (sys.executable, str(path))
