"""`kernel-compass advise`: which number format can pay, before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_compass.cli.options import FormatOption, JsonOption, OutputOption, regimes_named
from kernel_compass.cli.output import chosen_format, color_of, emit, prepare, width_of
from kernel_compass.cli.shapes import budget_pct_of, tokens_of, workload_of
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.report.formats import Format

if TYPE_CHECKING:
    from kernel_compass.records.workload import MeasuredLaunch

OpArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[OP SHAPE]",
        help="bmm HxMxKxN ([H,M,K] @ [H,K,N]) or linear MxNxK (x [M,K] @ W [N,K].T).",
        show_default=False,
    ),
]
ShapeArgument = Annotated[str | None, typer.Argument(hidden=True)]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME|FILE|this",
        help="Whose calibration: a shipped one (a100, h100, ...), a file that `calibrate --output` "
        "wrote, or this machine's (the default).",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="All products of a model's step instead."),
]
TokensOption = Annotated[
    str | None,
    typer.Option("--tokens", metavar="N,N,...", help="With --model: batch sizes. Default: 1."),
]
TpOption = Annotated[
    int | None,
    typer.Option("--tp", metavar="N", help="With --model: GPUs it is split over. Default: 1."),
]
RegimesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--regime",
        metavar="[warm|cold|in_situ]",
        help="Where the weights are before each launch. Repeatable. Default: warm and cold.",
        show_default=False,
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="PCT%", help="Largest relative error allowed, e.g. 3%."),
]

ProbesOption = Annotated[
    Path | None,
    typer.Option(
        "--probes",
        metavar="FILE",
        help="Times you measured on that GPU, as JSON: the estimates of their precisions are "
        "fitted to them, and the bands narrow.",
        show_default=False,
    ),
]


def advise(
    op: OpArgument = None,
    shape: ShapeArgument = None,
    gpu: GpuOption = None,
    model: ModelOption = None,
    tokens: TokensOption = None,
    tp: TpOption = None,
    regime: RegimesOption = None,
    budget: BudgetOption = None,
    probes: ProbesOption = None,
    format: FormatOption = None,
    json: JsonOption = False,
    output: OutputOption = None,
) -> None:
    """Say which number format can pay for a product, in which regime. Needs no GPU.

    For bf16, w8a16, w8a8 and w4a16: whether the working set stays in L2, the floor, an estimate
    with its error band, the most that can be won, and a verdict. Estimates; nothing is measured.
    """
    kind = chosen_format(format, json, output)
    regimes = regimes_named(regime or ()) or (Regime.WARM, Regime.COLD)
    budget_pct = None if budget is None else budget_pct_of(budget)
    _check_words(op, model, tokens, tp)
    measured = _measured(probes)
    prepare(output)
    from kernel_compass import api

    if model is not None:
        batches = tokens_of(tokens or "1")
        advice = api.advise_model(model, batches, tp or 1, gpu, regimes, budget_pct, measured)
    else:
        workloads = [workload_of(op or "", shape)]
        advice = api.advise(workloads, gpu, regimes, budget_pct, measured)
    from kernel_compass.report.advice import render_advice

    color = color_of(sys.stdout if output is None else None)
    text = render_advice(advice, kind, width_of(sys.stdout), color)
    emit(text, output, utf8=kind is not Format.TERMINAL)


def _measured(probes: Path | None) -> tuple[MeasuredLaunch, ...]:
    if probes is None:
        return ()
    from kernel_compass.cli.probes import probes_in

    return probes_in(probes)


def _check_words(op: str | None, model: str | None, tokens: str | None, tp: int | None) -> None:
    """Either a shape or a model, and nothing that belongs to the other.

    Raises:
        UsageError: none or both, or `--tokens` or `--tp` without a model.
    """
    example = "kernel-compass advise bmm 128x1x128x512 --gpu h100"
    if op is None and model is None:
        raise UsageError("Nothing to advise on was named.", example)
    if op is not None and model is not None:
        raise UsageError(f"Both {op} and --model {model} were named.", "Name one of them.")
    if tp is not None and tp < 1:
        raise UsageError(f"--tp {tp} is no number of GPUs.", "Name 1 or more.")
    if model is None and (tokens is not None or tp is not None):
        raise UsageError(
            "--tokens and --tp belong to --model; a shape says both itself.",
            f"{example}, or --model deepseek-v3 --tokens 1,16 --tp 8",
        )
