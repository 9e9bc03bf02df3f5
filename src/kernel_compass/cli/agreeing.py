"""The question before a file's code runs for the first time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from kernel_compass.errors import UsageError


def agree_to_run(files: Sequence[tuple[Path, str]], yes: bool) -> None:
    """Ask for each file whose content was never agreed to; the answer is remembered.

    Args:
        files: paths with the SHA-256 of what is in them.
        yes: ask nothing, and say that it runs.

    Raises:
        UsageError: the user declined, or nobody is there to be asked.
    """
    from kernel_compass.api import agreements

    for path, sha256 in dict.fromkeys(files):
        if agreements.agreed(sha256):
            continue
        if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise agreements.not_agreed(path, sha256)
        typer.echo(
            f"First run of {path}\n{_with(path)}  SHA-256 {sha256}\n"
            "  It is code: it may do whatever you may do, in a worker process of this machine.",
            err=True,
        )
        if not yes and not typer.confirm("Run it?", default=False, err=True):
            raise UsageError(f"{path} was not run.", "Look at it, then say yes, or pass --yes.")
        agreements.agree(sha256, path)


def _with(path: Path) -> str:
    """What it imports from its own folder, a line each; the hash is of all of them."""
    from kernel_compass.api.problem_imports import local_imports

    found = local_imports(path) if path.is_file() else ()
    return "".join(f"  with {one.relative_to(path.parent)}\n" for one in found)
