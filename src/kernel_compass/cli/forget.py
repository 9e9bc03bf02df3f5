"""`kernel-compass forget`: let ideas be tried again that were rejected."""

from __future__ import annotations

from typing import Annotated

import typer

from kernel_compass.cli.output import emit

ForgetImplementationOption = Annotated[
    str | None,
    typer.Option("--implementation", metavar="NAME", help="Those of this implementation."),
]
ForgetWorkloadOption = Annotated[
    str | None,
    typer.Option("--workload", metavar="NAME", help="Those at this workload, as history names it."),
]
ForgetStudyOption = Annotated[
    str | None, typer.Option("--study", metavar="NAME", help="Those that this study rejected.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]
ForgetJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def forget(
    implementation: ForgetImplementationOption = None,
    workload: ForgetWorkloadOption = None,
    study: ForgetStudyOption = None,
    all: AllOption = False,
    json: ForgetJsonOption = False,
) -> None:
    """Forget rejections that fit all that is given; `history --rejected` lists them.

    Rejections hold for one GPU and the versions they were found with; others are tried anyway.
    """
    from kernel_compass import api
    from kernel_compass.codec.canonical import indented
    from kernel_compass.report.phrases import count_text

    count = api.forget_ideas(implementation, workload, study, all)
    if json:
        emit(indented({"forgotten": count}).decode(), None)
    else:
        emit(f"Forgotten: {count_text(count, 'rejected idea')}.\n", None)
