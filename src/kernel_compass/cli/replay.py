"""`kernel-compass replay`: do the accepted claims of a study hold on this machine?"""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from kernel_compass.cli.agreeing import agree_to_run
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.output import emit

ReplayStudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="Its name, the beginning of it, `last`, or its folder's path."
    ),
]
ReplayDeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cuda, cuda:0, ..., simulated, or recorded:FILE. Default: the study's own.",
    ),
]
ReplaySeedOption = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="Of operands and placement; default: another each time."),
]
ReplayYesOption = Annotated[
    bool, typer.Option("--yes", help="Run the problem's file without asking, if it is one.")
]
ReplayJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
ReplayQuietOption = Annotated[bool, typer.Option("--quiet", help="Nothing while it runs.")]


def replay(
    study: ReplayStudyArgument,
    device: ReplayDeviceOption = None,
    seed: ReplaySeedOption = None,
    yes: ReplayYesOption = False,
    json: ReplayJsonOption = False,
    quiet: ReplayQuietOption = False,
) -> int:
    """Judge and time anew what a study accepted: fresh processes, operands and seeds.

    A claim holds where the candidate is right, wins in the regimes that the study asked for, and
    is not inferior in the others, by the study's own rule. Nothing is recorded.
    """
    from kernel_compass.api import replaying
    from kernel_compass.report.replays import replay_fields, replay_text

    agree_to_run(replaying.study_files(study), yes)

    def tell(line: str) -> None:
        if not (json or quiet):
            typer.echo(line, err=True)

    found = replaying.replay_study(study, device, seed, tell)
    if json:
        emit(json_module.dumps(replay_fields(found), indent=2) + "\n", None)
    else:
        emit(replay_text(found), None)
    return int(ExitCode.OK if found.holds else ExitCode.DOES_NOT_HOLD)
