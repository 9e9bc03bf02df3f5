"""`kernel-compass validate`: the judge alone."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from kernel_compass.cli.agreeing import agree_to_run
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.output import emit
from kernel_compass.cli.shapes import budget_pct_of, tokens_of
from kernel_compass.cli.table_options import words_of
from kernel_compass.errors import UsageError

CandidateArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[CANDIDATE]",
        help="An implementation (own_decode), a name in the problem's file, `baseline`, FILE.py "
        "with ModelNew, or FILE.py:FUNCTION.",
    ),
]
ProblemOption = Annotated[
    str | None,
    typer.Option(
        "--problem", metavar="P", help="mla:MODEL, bmm:HxMxKxN, linear:MxNxK, or a problem's file."
    ),
]
SelfTestOption = Annotated[
    bool,
    typer.Option("--self-test", help="Judge the built-in cheats: each must be caught by name."),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="cpu, cuda:0, ...; default: the GPU where there is one.")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="JSON", help="Its configuration, an object.")
]
ValidateFormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="F", help="Of an implementation: bf16, w8a16_fp8, ..."),
]
WorkloadOption = Annotated[
    int | None,
    typer.Option("--workload", metavar="N", min=1, help="Only the problem's Nth; default: all."),
]
ValidateTokensOption = Annotated[
    str | None, typer.Option("--tokens", metavar="N,N,...", help="Batch sizes.")
]
ValidateTpOption = Annotated[
    int | None, typer.Option("--tp", metavar="N", min=1, help="GPUs a model is split over.")
]
ValidateRegimeOption = Annotated[
    str, typer.Option("--regime", metavar="R,R", help="To time it in, on a GPU: cold, warm.")
]
ValidateBudgetOption = Annotated[
    str | None, typer.Option("--budget", metavar="3%", help="Default: the problem's own.")
]
SanitizeOption = Annotated[
    bool,
    typer.Option(
        "--sanitize",
        help="Also under compute-sanitizer: memcheck with the caching allocator off and guards "
        "behind allocations, and racecheck, which sees shared memory alone.",
    ),
]
ValidateYesOption = Annotated[
    bool, typer.Option("--yes", help="Run files that were never run here without asking.")
]
ValidateJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def validate(
    candidate: CandidateArgument = None,
    problem: ProblemOption = None,
    self_test: SelfTestOption = False,
    device: DeviceOption = None,
    config: ConfigOption = None,
    format: ValidateFormatOption = None,
    workload: WorkloadOption = None,
    tokens: ValidateTokensOption = None,
    tp: ValidateTpOption = None,
    regime: ValidateRegimeOption = "cold,warm",
    budget: ValidateBudgetOption = None,
    sanitize: SanitizeOption = False,
    yes: ValidateYesOption = False,
    json: ValidateJsonOption = False,
) -> int:
    """Is a candidate right, and does it do the work at every call?

    Judged in a worker, at every workload of the problem; on a GPU timed beside the baseline, too:
    in one process, so that the times prove nothing. --self-test lets the judge prove itself: an
    honest candidate passes, every cheat that this machine can stage is caught by the reason it is
    expected for. It does so by itself before it judges anything in a new environment.
    """
    if self_test:
        if candidate is not None or problem is not None:
            raise UsageError("--self-test judges the built-in cheats alone.", "Leave the rest out.")
        _self_test(device, json)
        return int(ExitCode.OK)
    if candidate is None or problem is None:
        raise UsageError(
            "validate has nothing to judge.",
            "Name CANDIDATE and --problem P, for example `kernel-compass validate own_decode "
            "--problem bmm:128x16x128x512 --format w8a16_fp8`; or pass --self-test.",
        )
    from kernel_compass.api import validating
    from kernel_compass.api.problems import problem_source
    from kernel_compass.cli.validate_view import document_of, show_proof, view

    source = problem_source(problem, None if tokens is None else tokens_of(tokens), tp)
    named = validating.candidate_named(candidate, source, config, format)
    regimes = validating.regimes_named(words_of(regime))
    budget_pct = None if budget is None else budget_pct_of(budget)
    agree_to_run((*source.files, *named.files), yes)
    request = validating.ValidateRequest(
        source, named, device, regimes, budget_pct, workload, sanitize
    )
    found = validating.validate(request, view(json), show_proof(json))
    if json:
        emit(json_module.dumps(document_of(found), indent=2) + "\n", None)
    return int(ExitCode.OK if found.passed else ExitCode.DOES_NOT_HOLD)


def _self_test(device: str | None, json: bool) -> None:
    from kernel_compass import api
    from kernel_compass.api.proving import judge_failed

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
        raise judge_failed(outcome, listed=True)
