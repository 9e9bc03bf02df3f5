"""`kernel-compass patch`: a table's changes as an edit, in a copy of a script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.errors import UsageError

ScriptArgument = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script.")]
TableOption = Annotated[Path, typer.Option("--with", metavar="FILE", help="The dispatch table.")]
CopyOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="COPY", help="Write the edited copy here.", show_default=False
    ),
]
DiffOption = Annotated[bool, typer.Option("--diff", help="Print the edit as a unified diff.")]


def patch(
    script: ScriptArgument,
    table: TableOption = Path("compass.json"),
    copy: CopyOption = None,
    diff: DiffOption = False,
) -> None:
    """Write a table's changes into a copy of a script; the script itself stays as it is.

    What has a plain spelling becomes code: `@torch.compile`, a switch, numbers at a kernel's
    launch. The rest is put on by `kernel_compass.applied` when the copy starts. The copy has to lie
    in the script's folder, as it imports what the script imports.
    """
    from kernel_compass.api.source_patch import patch_script

    if copy is None and not diff:
        raise UsageError("Nothing would be written.", "Name a copy with -o, or print it: --diff.")
    if copy is not None and copy.exists():
        what = "the script itself" if script.exists() and copy.samefile(script) else "there already"
        raise UsageError(f"{copy} is {what}.", "Name a new file: nothing is overwritten.")
    found = patch_script(table, script, copy or script)
    if copy is not None:
        copy.write_bytes(found.text.encode())
        copy.chmod(script.stat().st_mode & 0o777)
    if diff:
        typer.echo(found.diff, nl=False)
    for one in found.written:
        typer.echo(f"as code: {one}", err=True)
    for one in found.applied:
        typer.echo(f"put on at the start: {one}", err=True)
    for one in found.left_out:
        typer.echo(f"left out: {one}", err=True)
