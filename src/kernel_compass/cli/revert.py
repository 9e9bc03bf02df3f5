"""`kernel-compass revert`: take what a study contributed out of a dispatch table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.cli.output import emit

ReferenceArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY[:TRIAL]",
        help="A study by its name or the beginning of it, or one trial of it.",
    ),
]
TableOption = Annotated[Path, typer.Option("--table", metavar="FILE", help="The dispatch table.")]
RevertJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def revert(
    reference: ReferenceArgument,
    table: TableOption = Path("compass.json"),
    json: RevertJsonOption = False,
) -> None:
    """Take a study, or one trial, back out of a dispatch table.

    The table is then, byte for byte, what it would be without it: entries that had been outdone
    are in force again, other studies' stay, and a table with nothing left is removed. What was
    taken out stays in FILE.log.
    """
    from kernel_compass import api
    from kernel_compass.codec.canonical import indented
    from kernel_compass.codec.dispatch_table import entry_part
    from kernel_compass.codec.step_entry import step_part
    from kernel_compass.report.studies import reverted_text

    found = api.revert_study(reference, table)
    left = len(found.table.entries) + len(found.table.steps)
    if json:
        taken = [entry_part(one) for one in found.entries]
        steps = [step_part(one) for one in found.steps]
        parts = {"reverted": taken, "reverted_steps": steps, "entries_left": left}
        emit(indented(parts).decode(), None)
    else:
        emit(reverted_text(found.entries, left, str(table), found.steps), None)
