"""Measuring, planning and profiling a kernel table: what `mla` and `sweep` do alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kernel_compass.cli import calibration_progress
from kernel_compass.cli.output import STDOUT, color_of, emit, prepare, width_of
from kernel_compass.errors import (
    MeasurementCause,
    MeasurementError,
    MissingDependency,
    UsageError,
)
from kernel_compass.report.formats import Format, Style
from kernel_compass.report.phrases import count_text

if TYPE_CHECKING:
    from kernel_compass.api.kernel_requests import TableRequest
    from kernel_compass.cli.table_file import TableFile
    from kernel_compass.records.kernel_table import KernelTable


@dataclass(frozen=True)
class Outlet:
    """Where a table goes."""

    kind: Format
    output: Path | None
    plot: Path | None = None

    def check(self) -> None:
        """Fail early where something cannot be written.

        Raises:
            UsageError: it cannot, or a plot has no such form.
        """
        prepare(self.output)
        if self.plot is None:
            return
        if self.plot.suffix.lower() != ".svg":
            found = f"--plot {self.plot} is no SVG file."
            raise UsageError(found, f"Write --plot {self.plot.with_suffix('.svg')}.")
        prepare(self.plot, "--plot")
        if self.output is not None and self.plot.resolve() == self.output.resolve():
            found = f"--plot and --output are the same file, {self.plot}."
            raise UsageError(found, "Name two.")

    def show(self, table: KernelTable) -> None:
        """The table on standard output; beside a file, for people."""
        beside = self.output is not None and self.output != STDOUT
        kind = Format.TERMINAL if beside else self.kind
        _emit(table, kind, None)
        if beside:
            typer.echo(f"stored in {self.output}", err=True)
        self.draw(table)

    def draw(self, table: KernelTable) -> None:
        """The plot, where one was asked for."""
        if self.plot is not None:
            from kernel_compass.report.sweep_plot import sweep_svg

            emit(sweep_svg(table), self.plot)
            typer.echo(f"plot in {self.plot}", err=True)


def plan(request: TableRequest, gpu: str | None, outlet: Outlet, names: tuple[str, ...]) -> None:
    """Show what would be measured, and its floors.

    Raises:
        UsageError: the file holds something else than a plan, which would be lost.
    """
    from kernel_compass import api
    from kernel_compass.cli.table_file import TableFile

    outlet.check()
    there = TableFile(outlet.output, outlet.kind).rows
    if there:
        found = f"--output {outlet.output} holds {count_text(len(there), 'row')} of a measurement."
        raise UsageError(found, "Name another file for the plan, or leave --output out.")
    api.check_implementations(names)
    table = api.plan_kernels(request, gpu)
    _emit(table, outlet.kind, outlet.output)
    outlet.draw(table)


def measure(
    request: TableRequest, gpu: str | None, device: int, outlet: Outlet, again: bool
) -> None:
    """Measure, and keep what is there after every row.

    Raises:
        MeasurementError: there is no GPU, or nothing could be measured.
    """
    from kernel_compass import api
    from kernel_compass.cli.table_file import TableFile
    from kernel_compass.records.kernel_table import RowStatus

    outlet.check()
    file = TableFile(outlet.output, outlet.kind)
    with calibration_progress.shown("measuring") as on_progress:
        known = () if again else file.rows
        with _saying_what_works():
            opened = api.open_table(request, gpu, device, known, on_progress)
        rows = list(opened.run.kept)
        if rows:
            there = count_text(len(rows), "row")
            typer.echo(f"{there} of {outlet.output} measured here earlier: kept", err=True)
        try:
            for row in opened.rows():
                rows.append(row)
                file.write(opened.table(rows), rows)
        except BaseException:
            _tell_what_is_kept(file, len(rows))
            raise
    table = opened.table(rows)
    file.write(table, rows)
    outlet.show(table)
    if not any(row.status is RowStatus.MEASURED for row in rows):
        reason = next((row.reason for row in rows if row.reason), "no kernel can do what was asked")
        found = f"Nothing could be measured: {reason}"
        remedy = "See `kernel-compass doctor`, or name other --implementations or --precisions."
        raise MeasurementError(MeasurementCause.CALLABLE_FAILED, found, remedy)


def profile(request: TableRequest, device: int, shape: Callable[[str], str]) -> None:
    """Launch every kernel a few times in an NVTX range, and name the ranges."""
    from kernel_compass import api

    with calibration_progress.shown("launching") as on_progress, _saying_what_works():
        named, failed = api.profile_kernels(request, device, on_progress=on_progress)
    for text in failed:
        typer.echo(f"not launched: {text}", err=True)
    if not named:
        raise MeasurementError(
            MeasurementCause.CALLABLE_FAILED,
            "No kernel could be launched.",
            "See `kernel-compass doctor`, or name other --implementations or --precisions.",
        )
    for name in named:
        typer.echo(name)
    typer.echo(shape(named[0]), err=True)


@contextmanager
def _saying_what_works() -> Iterator[None]:
    """The option that needs neither, where torch or a GPU is missing."""
    from kernel_compass.api.kernels import WITHOUT_GPU

    option = "without a GPU, --dry-run --gpu h200 shows shapes, bytes and floors"
    try:
        yield
    except MissingDependency as error:
        remedy = error.remedy.replace(WITHOUT_GPU, option)
        raise MissingDependency(error.found, remedy) from None
    except MeasurementError as error:
        remedy = error.remedy.replace(WITHOUT_GPU, option)
        raise MeasurementError(error.cause, error.found, remedy) from None


def _tell_what_is_kept(file: TableFile, rows: int) -> None:
    kept = "nothing was kept: name --output FILE.json or FILE.csv"
    if file.path is not None and rows:
        kept = f"{count_text(rows, 'row')} kept in {file.path}; the same command goes on from there"
    typer.echo(f"stopped: {kept}", err=True)


def _emit(table: KernelTable, kind: Format, output: Path | None) -> None:
    from kernel_compass.report.kernel_table import render_kernel_table

    color = color_of(sys.stdout if output is None else None)
    text = render_kernel_table(table, kind, Style(width_of(sys.stdout), color))
    emit(text, output, utf8=kind is not Format.TERMINAL)
