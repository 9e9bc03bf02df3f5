"""`kernel-compass apply`: what a study accepted, put into a dispatch table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.cli.output import emit
from kernel_compass.cli.revert import TableOption

StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="By its name, the beginning of it, its folder; or `last`."
    ),
]
ApplyJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def apply(
    name: StudyArgument,
    table: TableOption = Path("compass.json"),
    json: ApplyJsonOption = False,
) -> None:
    """Put what a study accepted into a dispatch table; `revert` takes it out again.

    It reads the study's ledger and runs nothing: no GPU is needed, and the study stays as it is.
    What other studies contributed stays as well, and the better one is in force.
    """
    from kernel_compass import api
    from kernel_compass.codec.canonical import indented
    from kernel_compass.codec.dispatch_table import entry_part
    from kernel_compass.codec.step_entry import step_part
    from kernel_compass.report.studies import applied_text

    found = api.apply_study(name, table)
    if json:
        put = [entry_part(one) for one in found.entries]
        steps = [step_part(one) for one in found.steps]
        count = len(found.table.entries)
        emit(indented({"applied": put, "steps": steps, "entries": count}).decode(), None)
    else:
        said = (found.study, found.entries, found.table.entries, str(table), found.steps)
        emit(applied_text(*said), None)
