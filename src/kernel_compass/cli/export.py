"""`kernel-compass export`: a study as a document that can be compared byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.cli.output import emit, prepare
from kernel_compass.cli.show import StudyArgument

ExportOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write it to this file, replacing it whole; missing folders are created. Default: "
        "standard output.",
    ),
]
ExportJsonOption = Annotated[
    bool, typer.Option("--json", help="JSON, which it is without this option as well.")
]


def export(
    study: StudyArgument, output: ExportOutputOption = None, json: ExportJsonOption = False
) -> None:
    """Export a study as canonical JSON: no times of day, no paths, no name of the study.

    Two runs of one recording give the same bytes.
    """
    del json
    from kernel_compass import api

    prepare(output)
    emit(api.export_study(study).decode(), output)
