"""`kernel-compass optimize`: a problem to accepted entries of a dispatch table."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from kernel_compass.cli.agreeing import agree_to_run
from kernel_compass.cli.optimize_step import (
    DEFAULT_TABLE,
    CapturedOption,
    RecordOption,
    StepSource,
    StepWords,
    is_step,
    optimize_step,
)
from kernel_compass.cli.optimize_view import View, view_of
from kernel_compass.cli.options import CalibrationOption
from kernel_compass.cli.output import emit, prepare
from kernel_compass.cli.program_options import (
    ArgumentsArgument,
    EntryOption,
    InputsOption,
    ModuleOption,
    ScriptOption,
    TraceOption,
)
from kernel_compass.cli.shapes import budget_pct_of, tokens_of
from kernel_compass.cli.table_options import words_of
from kernel_compass.errors import UsageError
from kernel_compass.records.device import SIMULATED

MINUTES = 5.0
"""Where no limit is given."""
REGIMES, STRATEGY, DEVICE, RECORDED = "cold,warm", "model", "cuda", "recorded:"
"""Where none is named."""

TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]",
        help="mla:MODEL, bmm:HxMxKxN, linear:MxNxK, or a problem's file. Not with --resume, "
        "nor where a program is named.",
    ),
]
RegimeOption = Annotated[
    str | None,
    typer.Option(
        "--regime", metavar="R,R", help="Where a candidate has to win. Default: cold,warm."
    ),
]
TokensOption = Annotated[
    str | None,
    typer.Option("--tokens", metavar="N,N,...", help="Batch sizes. Of a model: 1,16,64."),
]
TpOption = Annotated[
    int | None,
    typer.Option("--tp", metavar="N", min=1, help="Of a model: GPUs it is split over."),
]
BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", metavar="3%", help="Largest relative error against full precision."),
]
FormatsOption = Annotated[
    str | None,
    typer.Option(
        "--formats",
        metavar="F,F,...",
        help="Number formats to try: bf16, w8a16_fp8, w4a16_gk, ... Of a program: of its products.",
    ),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(
        "--minutes", metavar="N", help=f"Time, the hold-out included. Default: {MINUTES:g}."
    ),
]
TrialsOption = Annotated[
    int | None, typer.Option("--trials", metavar="N", min=1, help="Screens at most.")
]
StrategyOption = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Of the search: exhaustive, random, optuna, or, the default, model.",
    ),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, help="Of draws and ties. Default: 0.")
]
StaticOption = Annotated[
    str | None,
    typer.Option(
        "--static",
        metavar="N|off",
        help="Configurations of each space that are compiled without being run before any is "
        "screened: what spills or does not fit is dropped. Default: 16 on a GPU, else off.",
    ),
]
OptimizeSanitizeOption = Annotated[
    bool,
    typer.Option(
        "--sanitize",
        help="Finalists also under compute-sanitizer: memcheck, and racecheck, which sees shared "
        "memory alone. Slow; off by default.",
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="STUDY",
        help="Go on with a study as it was begun; `last` is the last one.",
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Ask nothing: what is accepted goes into the table.")
]
TableOption = Annotated[
    Path | None,
    typer.Option("--table", metavar="FILE", help="The dispatch table. Default: compass.json."),
]
OptimizeJsonOption = Annotated[
    bool, typer.Option("--json", help="The study's document, and nothing else, at the end.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Nothing while it runs.")]
JsonLinesOption = Annotated[
    bool, typer.Option("--json-lines", help="Every event as a line of JSON while it runs.")
]
OptimizeDeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cuda (all GPUs, the default), cuda:0, ..., simulated, or recorded:FILE; of a program "
        "also cpu.",
    ),
]
MOST_DIGITS = 6


def optimize(
    target: TargetArgument = None,
    regime: RegimeOption = None,
    tokens: TokensOption = None,
    tp: TpOption = None,
    budget: BudgetOption = None,
    formats: FormatsOption = None,
    minutes: MinutesOption = None,
    trials: TrialsOption = None,
    strategy: StrategyOption = None,
    seed: SeedOption = None,
    static: StaticOption = None,
    sanitize: OptimizeSanitizeOption = False,
    resume: ResumeOption = None,
    yes: YesOption = False,
    table: TableOption = None,
    json: OptimizeJsonOption = False,
    quiet: QuietOption = False,
    json_lines: JsonLinesOption = False,
    device: OptimizeDeviceOption = None,
    arguments: ArgumentsArgument = None,
    script: ScriptOption = None,
    module: ModuleOption = None,
    entry: EntryOption = None,
    trace: TraceOption = None,
    captured: CapturedOption = None,
    inputs: InputsOption = None,
    record: RecordOption = None,
    calibration: CalibrationOption = None,
) -> int:
    """Try what there is for a problem or a program, and accept what fresh processes confirm.

    Measures the baseline, works where most is to be won, tries every implementation and searches
    its configurations; each candidate is judged, then timed beside the baseline. The best go
    through a hold-out in fresh processes; only that accepts. Everything is in the study's ledger:
    --resume goes on after any end.

    A program (--script, --module, --entry) is run in processes of its own and its step is made
    faster without an edit: other implementations of its products, compiled regions, a CUDA graph,
    attention backends, its own Triton kernels' configurations. A change is kept only if the whole
    step gets faster and its outputs stay within the budget. --captured and --trace look at what was
    captured before: they say what would be tried, and measure nothing.
    """
    _check_table(table)
    named = StepSource(script, module, entry, trace, captured, inputs)
    if not named.is_named and resume is None and is_forward_pass(target, device):
        named, target = StepSource(None, None, f"{target}:Model", None, None, inputs), None
    if not named.is_named and resume is not None:
        _check(target, resume, (json, quiet, json_lines))
        _check_unsaid(
            "A study goes on as it was begun: {} cannot be named beside it.",
            "Leave that out; or start a new study without --resume.",
            regime=regime,
            tokens=tokens,
            tp=tp,
            budget=budget,
            formats=formats,
            minutes=minutes,
            trials=trials,
            strategy=strategy,
            seed=seed,
            static=static,
            sanitize=sanitize or None,
            device=device,
        )
    if named.is_named or is_step(resume):
        _check_unsaid(
            "{}: not of a program: its step is timed as it runs, in situ.",
            "Leave that out.",
            regime=regime,
            tokens=tokens,
            tp=tp,
            strategy=strategy,
            seed=seed,
            static=static,
            sanitize=sanitize or None,
        )
        words = [*([target] if target else []), *(arguments or [])]
        return optimize_step(
            named,
            words,
            StepWords(
                budget,
                minutes,
                trials,
                device or DEVICE,
                calibration,
                resume,
                record,
                table,
                yes,
                formats,
            ),
            (json, quiet, json_lines),
        )
    _check(target, resume, (json, quiet, json_lines))
    _check_unsaid(
        "{}: not of a problem.",
        "Leave that out.",
        inputs=inputs,
        record=record,
        calibration=calibration,
    )
    if arguments:
        raise UsageError(f"{arguments[0]!r} is one word too many.", "Name one target.")
    from kernel_compass import api
    from kernel_compass.api.replaying import study_files
    from kernel_compass.codec.study_document import encode

    view = view_of(quiet or json, json_lines)
    with view:
        if resume is not None:
            agree_to_run(study_files(resume), yes)
            found = api.resume_study(resume, view.tell)
        else:
            assert target is not None
            request = api.study_request(
                target,
                regimes=words_of(REGIMES if regime is None else regime),
                tokens=None if tokens is None else tokens_of(tokens),
                tp=tp,
                budget_pct=None if budget is None else budget_pct_of(budget),
                formats=words_of(formats or ""),
                minutes=MINUTES if minutes is None and trials is None else minutes,
                trials=trials,
                strategy=STRATEGY if strategy is None else strategy,
                seed=seed or 0,
            )
            device = DEVICE if device is None else device
            options = api.loop_options(device, static_of(static), sanitize)
            agree_to_run(request.source.files, yes)
            found = api.optimize(request, device, view.tell, options)
    if json:
        emit(encode(found.recorded).decode(), None)
    view.close_with(found)
    _apply(view, found, yes, table)
    return int(found.exit_code)


def static_of(text: str | None) -> int | None:
    """`16`, `off`, or `None` where nothing is said.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    word = text.strip().lower()
    if word == "off":
        return 0
    if not (word.isascii() and word.isdecimal() and len(word) <= MOST_DIGITS):
        raise UsageError(f"--static {text} is no number of configurations.", "Pass 16, or off.")
    return int(word)


def is_forward_pass(target: str | None, device: str | None) -> bool:
    """Whether a target is a file with a `Model`: what is made faster is its forward pass.

    Such a file brings no candidates: on a simulated device or a recording nothing is to be tried.
    """
    if target is None or not target.endswith(".py") or (device or DEVICE) == SIMULATED:
        return False
    if (device or DEVICE).startswith(RECORDED):
        return False
    from kernel_compass.api.problem_models import is_model_source

    return is_model_source(Path(target))


def _check(target: str | None, resume: str | None, forms: tuple[bool, ...]) -> None:
    """A target or a study, and one form of output.

    Raises:
        UsageError: neither, or both.
    """
    if (target is None) == (resume is None):
        found = "Both a target and a study are named." if target else "Nothing is to be optimized."
        raise UsageError(found, "Name a target, mla:deepseek-v3 say, or --resume STUDY.")
    if sum(forms) > 1:
        raise UsageError("--json, --quiet and --json-lines exclude each other.", "Pass one.")


def _check_unsaid(found: str, remedy: str, **given: object) -> None:
    """That none of some options was named; `found` has a place for those that were.

    Raises:
        UsageError: one was.
    """
    said = [f"--{name}" for name, value in given.items() if value is not None]
    if said:
        raise UsageError(found.format(", ".join(said)), remedy)


def _check_table(table: Path | None) -> None:
    """That what is accepted can be put into it, before hours are spent.

    Raises:
        UsageError: its place cannot be written.
        StudyError: what lies there is no table.
    """
    if table is None:
        return
    prepare(table, "--table", regular=True)
    if table.exists():
        from kernel_compass.optimizer.dispatch_file import read_table

        read_table(table)


def _apply(view: View, found: object, yes: bool, table: Path | None) -> None:
    """Put what was accepted into the table: it was named, or the user says so."""
    from kernel_compass import api

    entries = found.recorded.entries  # type: ignore[attr-defined]
    name = found.recorded.study.identifier  # type: ignore[attr-defined]
    if not entries:
        return
    place = table or DEFAULT_TABLE
    of_table = f"{name} --table {quote(str(place))}"
    if not (yes or table is not None or view.agrees(len(entries), place)):
        view.say(f"Not applied. Apply it: kernel-compass apply {of_table}")
        return
    api.apply_study(str(found.folder), place)  # type: ignore[attr-defined]
    view.say(f"Written to {place}. Take it back: kernel-compass revert {of_table}")
