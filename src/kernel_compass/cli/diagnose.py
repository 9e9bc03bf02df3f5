"""`kernel-compass diagnose`: capture files to a report."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_compass.access import access_remedy
from kernel_compass.cli.exit_codes import Failures
from kernel_compass.cli.options import (
    CalibrationOption,
    FormatOption,
    JsonOption,
    LabelOption,
    OutputOption,
    regime_named,
)
from kernel_compass.cli.output import chosen_format, color_of, emit, prepare, width_of
from kernel_compass.errors import CaptureError, KernelCompassError, UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render_many

if TYPE_CHECKING:
    from kernel_compass.records.report import Report

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="Captures, each reported by itself: ncu CSV of the details or the raw page, .ncu-rep, "
        "a trace of torch.profiler (.json, .json.gz), or a folder that `profile --save` wrote or "
        "that holds a trace of each rank.",
        show_default=False,
    ),
]
RegimeFilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--regime",
        metavar="NAME=FILE",
        help="The capture of one program in this regime (warm, cold or in_situ); give it once "
        "for each regime, and they are joined in one report.",
    ),
]
TimelineOption = Annotated[
    Path | None,
    typer.Option(
        "--timeline",
        metavar="FILE",
        help="A trace of torch.profiler of the same program: it confirms or refutes what the "
        "captures' counters suspect to be launch_bound.",
    ),
]


def diagnose(
    files: FilesArgument = None,
    regime: RegimeFilesOption = None,
    timeline: TimelineOption = None,
    label: LabelOption = None,
    calibration: CalibrationOption = None,
    format: FormatOption = None,
    json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Say what limits the kernels in Nsight Compute files or torch.profiler traces, and what would
    help. Needs no GPU.

    With several reports, JSON is an array and CSV one table. When some files, named or in a folder,
    cannot be used, the others are reported all the same, and the exit code is that of the first
    failure.
    """
    kind = chosen_format(format, json, output)
    joined = joined_files(regime or ())
    plain = list(files or ())
    if not plain and not joined:
        raise UsageError("No capture was named.", "kernel-compass diagnose FILE...")
    prepare(output)
    reports, errors = _reports(plain, joined, label, calibration, timeline)
    if reports:
        several = max(len(plain) + bool(joined), len(reports) + len(errors)) > 1
        show(reports, kind, output, as_list=several)
    if errors:
        raise Failures(errors)


def show(reports: Sequence[Report], kind: Format, output: Path | None, as_list: bool) -> None:
    """Render reports for where they go, and write them there."""
    width, color = width_of(sys.stdout), color_of(sys.stdout)
    if output is not None:
        color = color_of(None)
    text = render_many(reports, kind, width, color, as_list)
    emit(text, output, utf8=kind is not Format.TERMINAL)


def joined_files(specs: Sequence[str]) -> dict[Regime, Path]:
    """`NAME=FILE` words as files by regime.

    Raises:
        UsageError: a word without a file, an unknown regime, or one named twice.
    """
    joined: dict[Regime, Path] = {}
    for spec in specs:
        name, equals, file = spec.partition("=")
        regime = regime_named(name)
        if not equals or not file:
            found = f"--regime {spec} names no file."
            raise UsageError(found, f"Write --regime {regime.value}=FILE.")
        if regime in joined:
            found = f"--regime {regime.value} is given twice: {joined[regime]} and {file}."
            raise UsageError(found, "Join one capture a regime; report the other by itself.")
        joined[regime] = Path(file)
    return joined


def _reports(
    plain: Sequence[Path],
    joined: dict[Regime, Path],
    label: str | None,
    calibration: str | None,
    timeline: Path | None,
) -> tuple[list[Report], list[KernelCompassError]]:
    """A report for every input that can be used, and the failures of the others."""
    from kernel_compass import api

    reports: list[Report] = []
    errors: list[KernelCompassError] = []
    diagnose_files = partial(
        api.diagnose_files,
        label=label,
        calibration=calibration,
        on_error=errors.append,
        timeline=timeline,
    )
    if timeline is not None:
        _check_readable([timeline])
    jobs: list[tuple[Sequence[Path], Callable[[], list[Report]]]] = [
        ([path], partial(diagnose_files, [path], {})) for path in plain
    ]
    if joined:
        together = partial(diagnose_files, [], joined)
        jobs.append((list(joined.values()), together))
    for paths, job in jobs:
        try:
            _check_readable(paths)
            reports.extend(job())
        except KernelCompassError as error:
            named = any(path.name in error.found for path in paths)
            if not named and len(jobs) > 1 and len(paths) == 1:
                error.found = f"{paths[0]}: {error.found}"
            errors.append(error)
    return reports, errors


def _check_readable(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():  # a folder that `profile --save` wrote; the reader says what it lacks
            continue
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise CaptureError(f"{path} is not a regular file.", "Copy it to a file first.")
            with path.open("rb"):
                pass
        except OSError as error:
            found = f"{path} cannot be read: {error.strerror or error}."
            raise CaptureError(found, access_remedy(path, error, "name another file")) from None
