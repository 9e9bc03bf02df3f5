"""`kernel-compass capture`: a program's step, from kernel to operator to line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_compass.cli.agreeing import agree_to_run
from kernel_compass.cli.options import CalibrationOption
from kernel_compass.cli.output import emit, prepare, width_of, write
from kernel_compass.cli.program_options import (
    ArgumentsArgument,
    EntryOption,
    InputsOption,
    ModuleOption,
    ScriptOption,
    TraceOption,
)
from kernel_compass.errors import UsageError

if TYPE_CHECKING:
    from kernel_compass.records.step_capture import StepCapture

STDERR = 2

CaptureOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.json.gz",
        help="Keep the capture: what `optimize` and a later look read.",
    ),
]
CaptureJsonOption = Annotated[
    bool, typer.Option("--json", help="The capture's document on standard output.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do not ask before the program runs for the first time.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="S", min=1.0, help="Stop the program after so long."),
]
NcuOption = Annotated[
    bool,
    typer.Option(
        "--ncu",
        help="Run the program twice more, under ncu: its counters say what limits each kernel.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every row of the table.")]


def capture(
    arguments: ArgumentsArgument = None,
    script: ScriptOption = None,
    module: ModuleOption = None,
    entry: EntryOption = None,
    trace: TraceOption = None,
    inputs: InputsOption = None,
    output: CaptureOutputOption = None,
    json: CaptureJsonOption = False,
    calibration: CalibrationOption = None,
    timeout: TimeoutOption = None,
    ncu: NcuOption = False,
    all: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Run a program once and say what a step of it is made of: kernels with the operator and the
    line of source that launched them, their share, limiter and headroom, and which runs of small
    kernels could be fused.

    The program is not changed: what it prints, its exit code and its results are its own. Its
    standard output goes to standard error, so that the report stands alone.
    """
    prepare(output)
    from kernel_compass.api import step_capturing, step_program
    from kernel_compass.codec.step_capture_document import encode

    if trace is not None:
        if script or module or entry or arguments or inputs or ncu:
            raise UsageError("--trace stands in for a run.", "Name a trace, or a program.")
        captures = step_capturing.capture_trace(trace, calibration)
    else:
        program = step_program.program_of(
            None if script is None else str(script), module, entry, arguments or (), inputs
        )
        agree_to_run(step_program.program_files(program), yes)
        found = step_capturing.capture_program(
            program, calibration, timeout, target_stdout=STDERR, counters=ncu
        )
        captures = (found,)
    if output is not None:
        _keep(captures, output)
    for one in captures:
        if json:
            emit(encode(one).decode(), None)
        else:
            emit(step_capturing.report_of(one, calibration, width_of(sys.stdout), all), None, False)


def _keep(captures: Sequence[StepCapture], output: Path) -> None:
    """One file, or one for every rank."""
    from kernel_compass.codec.step_capture_document import packed

    for rank, one in enumerate(captures):
        name = output.name if len(captures) == 1 else f"rank{rank}-{output.name}"
        path = output.with_name(name)
        write(packed(one), path)
        typer.echo(f"Written to {path}.", err=True)
