"""The command line. The only place that prints errors and decides the exit code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kernel_compass import __version__
from kernel_compass.access import access_remedy
from kernel_compass.cli.advise import advise
from kernel_compass.cli.apply import apply
from kernel_compass.cli.calibrate import calibrate
from kernel_compass.cli.capture import capture
from kernel_compass.cli.diagnose import diagnose
from kernel_compass.cli.doctor import doctor
from kernel_compass.cli.exit_codes import EXIT_CODES_TEXT, ExitCode, Failures, exit_code_of
from kernel_compass.cli.export import export
from kernel_compass.cli.forget import forget
from kernel_compass.cli.history import history
from kernel_compass.cli.mla import mla
from kernel_compass.cli.optimize import optimize
from kernel_compass.cli.patch import patch
from kernel_compass.cli.profile import ProfileCommand, profile
from kernel_compass.cli.replay import replay
from kernel_compass.cli.revert import revert
from kernel_compass.cli.run import RunCommand
from kernel_compass.cli.run import run as run_program
from kernel_compass.cli.show import show
from kernel_compass.cli.sweep import sweep
from kernel_compass.cli.validate import validate
from kernel_compass.errors import KernelCompassError, shortened

PROGRAM = "kernel-compass"
DEBUG_VARIABLE = "KERNEL_COMPASS_DEBUG"
_LONGEST_ERROR = 5000

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
"""The commands, in the order of the pipeline."""

app.command(
    cls=ProfileCommand,
    context_settings={"allow_interspersed_args": False},
    short_help="A program to a report: why its kernels are slow.",
    epilog=EXIT_CODES_TEXT,
)(profile)
app.command(
    short_help="A program's step: kernels, operators, lines, groups.", epilog=EXIT_CODES_TEXT
)(capture)
app.command(short_help="Nsight Compute files to a report.", epilog=EXIT_CODES_TEXT)(diagnose)
app.command(short_help="Which number format can pay, without a GPU.", epilog=EXIT_CODES_TEXT)(
    advise
)
app.command(short_help="MLA's products: formats, kernels, regimes.", epilog=EXIT_CODES_TEXT)(mla)
app.command(short_help="Kernels across the boundary of L2.", epilog=EXIT_CODES_TEXT)(sweep)
app.command(short_help="Measure and store the ceilings of this GPU.", epilog=EXIT_CODES_TEXT)(
    calibrate
)
app.command(short_help="Try, judge, hold out, accept.", epilog=EXIT_CODES_TEXT)(optimize)
app.command(
    "run",
    cls=RunCommand,
    context_settings={"allow_interspersed_args": False},
    short_help="A program with a table's changes on.",
    epilog=EXIT_CODES_TEXT,
)(run_program)
app.command(short_help="A table's changes as an edit of a copy.", epilog=EXIT_CODES_TEXT)(patch)
app.command(short_help="The studies that were run.", epilog=EXIT_CODES_TEXT)(history)
app.command(short_help="One study with its trials.", epilog=EXIT_CODES_TEXT)(show)
app.command(short_help="Do a study's claims hold here?", epilog=EXIT_CODES_TEXT)(replay)
app.command(short_help="A study as canonical JSON.", epilog=EXIT_CODES_TEXT)(export)
app.command(short_help="Put a study into a dispatch table.", epilog=EXIT_CODES_TEXT)(apply)
app.command(short_help="Take a study out of a dispatch table.", epilog=EXIT_CODES_TEXT)(revert)
app.command(short_help="Let rejected ideas be tried again.", epilog=EXIT_CODES_TEXT)(forget)
app.command(short_help="Judge one candidate by itself.", epilog=EXIT_CODES_TEXT)(validate)
app.command(short_help="What this machine can do.", epilog=EXIT_CODES_TEXT)(doctor)


@app.callback(invoke_without_command=True, epilog=EXIT_CODES_TEXT)
def main_options(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Why is this GPU kernel slow, and what would help? The memory regime is in every number."""
    if version:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def run() -> None:
    """Entry point of the `kernel-compass` command."""
    sys.exit(main())


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        args: the words after the program's name; `None` = those of the process.

    Returns:
        The exit code, one of `ExitCode`.
    """
    command = typer.main.get_command(app)
    words = None if args is None else list(args)
    try:
        result = command.main(args=words, prog_name=PROGRAM, standalone_mode=False)
    except Failures as failures:
        for error in failures.errors:
            _print_error(error.found, error.remedy)
        return int(exit_code_of(failures.errors[0]))
    except KernelCompassError as error:
        _print_error(error.found, error.remedy)
        return int(exit_code_of(error))
    except (KeyboardInterrupt, typer.Abort):
        _print_error("interrupted", "")
        return int(ExitCode.INTERRUPTED)
    except OSError as error:
        _print_error(*_words_of(error))
        return int(ExitCode.USAGE)
    except Exception as error:
        return _unexpected(error)
    return result if isinstance(result, int) else int(ExitCode.OK)


def _words_of(error: OSError) -> tuple[str, str]:
    """What an error of the operating system says, and the next command where there is one."""
    remedy = ""
    if isinstance(error, PermissionError) and isinstance(error.filename, str | bytes):
        place = Path(os.fsdecode(error.filename))
        remedy = access_remedy(place, error, "name another file")
    return f"{error.filename or 'the output'}: {error.strerror or error}.", remedy


def _unexpected(error: Exception) -> int:
    """Typer's own usage errors, and bugs."""
    usage = _usage_message(error)
    if usage is not None:
        _print_error(*usage)
        return int(ExitCode.USAGE)
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    found = f"unexpected {type(error).__name__}: {error}"
    _print_error(
        found, f"This is a bug; run again with {DEBUG_VARIABLE}=1 and report what it says."
    )
    return int(ExitCode.BUG)


def _usage_message(error: Any) -> tuple[str, str] | None:
    """What a typer usage error says; its class is not public in every version of typer."""
    if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
        return None
    context = getattr(error, "ctx", None)
    return error.format_message(), f"{context.command_path if context else PROGRAM} --help"


def _print_error(found: str, remedy: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # nobody may be listening
        typer.echo(f"error: {shortened(found, _LONGEST_ERROR)}", err=True)
        if remedy:
            typer.echo(f"next: {remedy}", err=True)


if __name__ == "__main__":
    run()
