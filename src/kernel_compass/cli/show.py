"""`kernel-compass show`: one study with its trials."""

from __future__ import annotations

from typing import Annotated

import typer

from kernel_compass.cli.output import emit

StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY", help="Its name, the beginning of it, `last`, or its folder's path."
    ),
]
ShowJsonOption = Annotated[
    bool, typer.Option("--json", help="The study's document instead of text.")
]


def show(study: StudyArgument, json: ShowJsonOption = False) -> None:
    """Show a study: what was asked for, every trial with its verdict, what was accepted.

    May be called while the study runs.
    """
    from kernel_compass import api
    from kernel_compass.codec.study_document import encode
    from kernel_compass.report.step_study import step_study_text
    from kernel_compass.report.studies import study_text

    recorded = api.study(study)
    text = study_text(recorded)
    if recorded.step is not None:
        text += "\n" + step_study_text(recorded)
    emit(encode(recorded).decode() if json else text, None)
