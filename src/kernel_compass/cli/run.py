"""`kernel-compass run`: a program with what a dispatch table holds, its files as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.access import unreadable
from kernel_compass.cli.profile import ModuleOption, ProfileCommand
from kernel_compass.cli.target import misplaced_options
from kernel_compass.errors import UsageError

TargetArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCRIPT",
        help="A Python script and its arguments. All that follows SCRIPT or -m MODULE is its own.",
        show_default=False,
    ),
]
TableOption = Annotated[
    Path, typer.Option("--with", metavar="FILE", help="The dispatch table.", show_default=True)
]
KindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only changes of this kind: product, triton_config, layout, matmul_precision, "
        "sdpa_backend, compile_region, step_graph. Repeatable.",
        show_default=False,
    ),
]
FreeOption = Annotated[
    bool,
    typer.Option(
        "--free-originals", help="Packed weights' originals lie in host memory meanwhile."
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain", help="Say on standard error at the end what was on, and why the rest was not."
    ),
]


class RunCommand(ProfileCommand):
    """A command whose options end at SCRIPT or at `-m MODULE`."""


def run(
    ctx: typer.Context,
    target: TargetArgument = None,
    table: TableOption = Path("compass.json"),
    module: ModuleOption = None,
    kind: KindOption = None,
    free_originals: FreeOption = False,
    explain: ExplainOption = False,
) -> None:
    """Run a program with the changes of a dispatch table on, and nothing of it edited.

    Its output, its input and its exit code are its own. What was measured on another GPU, or with
    other files, is left out; where nothing is left, the program runs as it always does, and a line
    on standard error says why.
    """
    from kernel_compass.optimizer.dispatch_file import read_table
    from kernel_compass.records.step_action import StepActionKind

    words = [word for at, word in enumerate(target or []) if at != _separator(target, module)]
    for one in kind or ():
        if one not in list(StepActionKind):
            raise UsageError(f"{one!r} is no kind of change.", "kernel-compass run --help")
    if module is None:
        if not words:
            raise UsageError("No program was named.", "kernel-compass run SCRIPT [-- ARGS]")
        _check_readable(Path(words[0]))
        for option in misplaced_options(target or [], ctx.meta["own_options"]):
            note = f"note: {option} follows {words[0]} and goes to it; ours go before it"
            typer.echo(note, err=True)
    read_table(table)  # said here, where errors have a remedy
    own = ["--table", str(table.resolve()), *(f"--kind={one}" for one in kind or ())]
    own += ["--free-originals"] * free_originals + ["--explain"] * explain
    own += ["--module", "--", module] if module is not None else ["--"]
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "kernel_compass.api.applied_program", *own, *words]
    os.execv(sys.executable, command)


def _check_readable(script: Path) -> None:
    """Said here, where errors have a remedy.

    Raises:
        UsageError: there is no such script, or it may not be read.
    """
    try:
        if not script.exists():
            raise UsageError(f"There is no file {script}.", "Name a script, or -m MODULE.")
        if not script.is_dir():
            script.open("rb").close()
    except OSError as error:
        raise unreadable(script, error, "name another script") from None


def _separator(target: list[str] | None, module: str | None) -> int | None:
    """Where the `--` stands that only separates: behind SCRIPT, or first behind `-m MODULE`."""
    words = target or []
    at = 0 if module is not None else 1
    return at if len(words) > at and words[at] == "--" else None
