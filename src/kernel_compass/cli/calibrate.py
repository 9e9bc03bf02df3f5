"""`kernel-compass calibrate`: what this machine can do, measured and stored."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_compass.cli import calibration_progress
from kernel_compass.cli.options import JsonOption
from kernel_compass.cli.output import STDOUT, chosen_format, color_of, emit, prepare, width_of
from kernel_compass.errors import CalibrationError, UsageError
from kernel_compass.report.formats import Format, Style

if TYPE_CHECKING:
    from kernel_compass.records.calibration import Calibration

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME|FILE]",
        help="With --show: a shipped calibration (a100, b200, b300, h100, ...), a stored one, or "
        "a file. Without it: this machine's own.",
        show_default=False,
    ),
]
ShowOption = Annotated[bool, typer.Option("--show", help="Show a calibration; measure nothing.")]
QuickOption = Annotated[
    bool,
    typer.Option("--quick", help="Half of the sizes, fewer samples, no noise floor."),
]
DeviceOption = Annotated[
    int | None,
    typer.Option("--device", metavar="INDEX", min=0, help="Which GPU, as CUDA counts. Default: 0."),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=1.0, help="Give up after this time."),
]


class _Form(StrEnum):
    """The forms a calibration has; a table of all its numbers is none of them."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    JSON = "json"


FormOption = Annotated[
    _Form | None,
    typer.Option(
        "--format",
        help="Form of what is shown. Default: with --show that of --output's suffix (.json, .md), "
        "else terminal.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the calibration to this file instead of the store; with --show, what is "
        "shown, as --format or the file's suffix (.json, .md) says.",
    ),
]


def calibrate(
    name: NameArgument = None,
    show: ShowOption = False,
    quick: QuickOption = False,
    device: DeviceOption = None,
    timeout: TimeoutOption = None,
    format: FormOption = None,
    json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Measure what this machine can do: bandwidths, effective L2, peaks, launch costs, noise.

    It takes about a minute, should have the GPU to itself, and is stored for the other commands
    under this device and driver. With --show it measures nothing and needs no GPU.
    """
    form = None if format is None else Format(format.value)
    kind = chosen_format(form, json, output if show else None)
    if kind is Format.CSV:
        raise UsageError("A calibration has no CSV form.", "Choose json, markdown or terminal.")
    if show:
        _check_measures_nothing(quick, device, timeout)
        _show(name, kind, output)
        return
    if name is not None:
        found = f"{name!r} names a calibration to show, and --show is not there."
        raise UsageError(found, f"kernel-compass calibrate --show {name}")
    prepare(output)
    _measure(quick, device or 0, timeout, kind, output)


def _check_measures_nothing(quick: bool, device: int | None, timeout: float | None) -> None:
    """No option of measuring beside `--show`.

    Raises:
        UsageError: there is one.
    """
    options = {"--quick": quick, "--device": device is not None, "--timeout": timeout is not None}
    given = [name for name, there in options.items() if there]
    if given:
        found = f"--show measures nothing, so {' and '.join(given)} cannot go with it."
        raise UsageError(found, "Leave out --show to measure, or the rest to look.")


def _show(name: str | None, kind: Format, output: Path | None) -> None:
    from kernel_compass import api

    if name is not None:
        calibration, place = api.calibration(name), ""
    else:
        own = api.machine_calibration()
        if own is None:
            known = ", ".join(api.shipped_calibrations())
            found = "This machine has no stored calibration."
            remedy = "Measure one with `kernel-compass calibrate`, or show a shipped one: "
            raise CalibrationError(found, f"{remedy}`calibrate --show NAME` with one of {known}.")
        calibration, place = own, "this machine's own"
    _emit(calibration, kind, output, place)


def _measure(
    quick: bool, device: int, timeout: float | None, kind: Format, output: Path | None
) -> None:
    from kernel_compass import api

    if output is None:
        api.check_calibration_store()
    limit = {} if timeout is None else {"timeout_s": timeout}
    with calibration_progress.shown() as on_progress:
        try:
            calibration = api.calibrate(quick, on_progress, device, **limit)
        except KeyboardInterrupt:
            lost = f"{on_progress.last or 'nothing was measured yet'}; nothing was stored, and an"
            typer.echo(f"interrupted: {lost} earlier calibration is as it was", err=True)
            raise
    if output == STDOUT:
        _emit(calibration, Format.JSON, None, "")
        return
    path = api.save_calibration(calibration, output)
    _emit(calibration, kind, None, f"stored in {path}")


def _emit(calibration: Calibration, kind: Format, output: Path | None, place: str) -> None:
    from kernel_compass.report.calibration import render_calibration

    if output is not None:
        prepare(output)
    color = color_of(sys.stdout if output is None else None)
    text = render_calibration(calibration, kind, Style(width_of(sys.stdout), color), place)
    emit(text, output, utf8=kind is not Format.TERMINAL)
