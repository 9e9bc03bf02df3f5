"""What decides a study over a step, as its request keeps it, and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kernel_compass.api.step_program import Program, ProgramKind, program_files
from kernel_compass.errors import StudyError
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_loop import StepOptions
from kernel_compass.records.study import StudyLimits, StudyRequest

STEP = "step"
"""What `options["study"]` says of a study over a step."""
BUDGET_PCT = 1.0
"""Of the step's outputs, where no budget is given."""
RECORDED = "recorded:"
NEW_STUDY = "Start a new study: what was tried there says nothing here."


@dataclass(frozen=True)
class StepAsked:
    """What decides a study over a step, beside the program.

    Raises:
        UsageError: a format is none.
    """

    budget_pct: float = BUDGET_PCT
    limits: StudyLimits = field(default_factory=StudyLimits)
    device: str = "cuda"
    calibration: str | None = None
    product_minutes: float = 1.5
    options: StepOptions = field(default_factory=StepOptions)
    formats: tuple[str, ...] = ()
    """Number formats that products may be computed in; none = all that fit the budget."""

    def __post_init__(self) -> None:
        names = dict.fromkeys(NumberFormat.parse(word).name for word in self.formats)
        object.__setattr__(self, "formats", tuple(names))


def is_step_study(request: StudyRequest) -> bool:
    """Whether a study is over a program's step."""
    return request.options.get("study") == STEP


def request_of(program: Program, asked: StepAsked) -> StudyRequest:
    """The request of a study over a program's step.

    Raises:
        UsageError: there is no such module, or a file cannot be read.
    """
    (path, sha256), *more = program_files(program)
    target = program.target
    if program.kind is not ProgramKind.MODULE:
        whole = str(path.resolve())
        target = f"{whole}:{program.function}" if program.function else whole
    arguments = {f"argument{i:03d}": one for i, one in enumerate(program.arguments)}
    if program.inputs:
        file, _, function = program.inputs.rpartition(":")
        arguments["inputs"] = f"{Path(file).resolve()}:{function}" if file else function
    if more:
        arguments["inputs_sha256"] = more[0][1]
    source = ProblemSource(target, {"program": program.kind.value, **arguments}, sha256)
    return request_from(source, asked)


def request_from(source: ProblemSource, asked: StepAsked) -> StudyRequest:
    """The same, where the source is known."""
    options: dict[str, int | float | str | bool] = {
        "study": STEP,
        "device": asked.device,
        "product_minutes": asked.product_minutes,
        **asked.options.kept,
    }
    if asked.calibration is not None:
        options["calibration"] = asked.calibration
    return StudyRequest(
        source,
        (Regime.IN_SITU,),
        asked.budget_pct,
        asked.formats,
        limits=asked.limits,
        strategy="greedy",
        options=options,
    )


def asked_of(request: StudyRequest) -> StepAsked:
    """What a study was begun with."""
    options = request.options
    calibration = options.get("calibration")
    budget = request.error_budget_pct
    return StepAsked(
        BUDGET_PCT if budget is None else budget,
        request.limits,
        str(options["device"]),
        None if calibration is None else str(calibration),
        float(options.get("product_minutes", 1.5)),
        StepOptions.of(request),
        request.formats,
    )


def program_in(request: StudyRequest) -> Program:
    """The program that a study is of."""
    arguments = request.source.arguments
    words = [str(v) for k, v in sorted(arguments.items()) if k.startswith("argument")]
    kind, inputs = ProgramKind(str(arguments["program"])), str(arguments.get("inputs", ""))
    return Program(kind, request.source.target, tuple(words), inputs)


def checked_program(request: StudyRequest) -> Program:
    """A study's program: what was tried on another one says nothing of it.

    Raises:
        StudyError: its file, or that of its inputs, is another one by now.
    """
    program = program_in(request)
    known = (request.source.sha256, request.source.arguments.get("inputs_sha256"))
    for (path, sha256), before in zip(program_files(program), known, strict=False):
        if sha256 != before:
            found = f"{path} was changed since the study was begun."
            raise StudyError(found, NEW_STUDY)
    return program
