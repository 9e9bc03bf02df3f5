"""`kernel-compass validate`: the judge alone."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from kernel_compass.cli.output import emit
from kernel_compass.errors import JudgeError, UsageError

SelfTestOption = Annotated[
    bool,
    typer.Option("--self-test", help="Judge the built-in cheats: each must be caught by name."),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu, cuda:0, ...; default: the GPU where torch sees one.")
]
ValidateJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def validate(
    self_test: SelfTestOption = False,
    device: DeviceOption = None,
    json: ValidateJsonOption = False,
) -> None:
    """Is a candidate right, and does it do the work at every call?

    --self-test lets the judge prove itself: an honest candidate passes, every cheat that this
    machine can stage is caught by the reason it is expected for.
    """
    from kernel_compass import api

    if not self_test:
        raise UsageError("validate has nothing to judge.", "Pass --self-test.")
    width = 44

    def show(result: api.CheatResult) -> None:
        if json:
            return
        found = result.found.value if result.found else "NOT CAUGHT"
        typer.echo(f"{'ok  ' if result.caught else 'MISS'} {result.name:{width}} {found}")

    outcome = api.run_self_test(device, show)
    if json:
        emit(json_module.dumps(api.self_test_fields(outcome), indent=2) + "\n", None)
    else:
        for name in outcome.not_staged:
            typer.echo(f"-    {name:{width}} not tested: needs a GPU")
        honest = outcome.honest_rejected or "accepted"
        typer.echo(
            f"{'ok  ' if honest == 'accepted' else 'MISS'} {'the honest one':{width}} {honest}"
        )
    if not outcome.passed:
        missed = sum(not one.caught for one in outcome.results)
        raise JudgeError(
            f"The judge missed {missed} of {len(outcome.results)} cheats, or rejected the honest "
            "candidate: no study may run here.",
            "Report this with the list above.",
        )
