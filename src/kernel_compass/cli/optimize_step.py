"""`kernel-compass optimize` where a program is named: its step, or a capture of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from kernel_compass.access import is_file
from kernel_compass.cli.agreeing import agree_to_run
from kernel_compass.cli.optimize_view import view_of
from kernel_compass.cli.output import emit, prepare
from kernel_compass.cli.shapes import budget_pct_of
from kernel_compass.cli.table_options import words_of
from kernel_compass.errors import UsageError

__all__ = [
    "CapturedOption",
    "RecordOption",
    "StepSource",
    "StepWords",
    "is_step",
    "optimize_step",
]
DEFAULT_TABLE = Path("compass.json")

CapturedOption = Annotated[
    Path | None,
    typer.Option(
        "--captured",
        metavar="FILE.json.gz",
        help="What `capture -o` or `optimize --record` wrote, in place of a run; nothing is "
        "measured.",
    ),
]
RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE.json.gz",
        help="Of a program: keep every answer; --captured runs the loop on it again.",
    ),
]


@dataclass(frozen=True)
class StepSource:
    """How a program, or what is known of one, was named."""

    script: Path | None
    module: str | None
    entry: str | None
    trace: Path | None
    captured: Path | None
    inputs: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether one was."""
        return any((self.script, self.module, self.entry, self.trace, self.captured))


@dataclass(frozen=True)
class StepWords:
    """What else was said on the command line."""

    budget: str | None
    minutes: float | None
    trials: int | None
    device: str
    calibration: str | None
    resume: str | None
    record: Path | None
    table: Path | None
    yes: bool
    formats: str | None = None


def is_step(resume: str | None) -> bool:
    """Whether what is to be resumed is a study over a program's step."""
    if resume is None:
        return False
    from kernel_compass import api
    from kernel_compass.api.step_requests import is_step_study

    return is_step_study(api.study(resume).study.request)


def optimize_step(
    source: StepSource, arguments: Sequence[str], words: StepWords, forms: tuple[bool, bool, bool]
) -> int:
    """Run the loop over a program's step, or look at a capture.

    Raises:
        UsageError: what is named does not fit together.
    """
    json, quiet, json_lines = forms
    if sum(forms) > 1:
        raise UsageError("--json, --quiet and --json-lines exclude each other.", "Pass one.")
    if words.resume is not None and source.is_named:
        both = "Both a program and a study are named."
        raise UsageError(both, "Name a program, or --resume STUDY.")
    if source.inputs is not None and (words.resume or source.trace or source.captured):
        said = "--inputs: outputs are compared where a new study runs a program."
        raise UsageError(said, "Leave that out; or name the program.")
    if source.trace is not None or source.captured is not None:
        return _without_a_run(source, arguments, words, forms)
    prepare(words.record, "--record", regular=True)
    from kernel_compass.api import step_optimizing, step_program

    view = view_of(quiet or json, json_lines)
    if words.resume is not None:
        agree_to_run(step_optimizing.step_files(words.resume), words.yes)
        with view:
            found = step_optimizing.resume_step(words.resume, view.tell)
    else:
        program = step_program.program_of(
            None if source.script is None else str(source.script),
            source.module,
            source.entry,
            arguments,
            source.inputs,
        )
        agree_to_run(step_program.program_files(program), words.yes)
        with view:
            found = step_optimizing.optimize_step(
                program, _asked(words), view.tell, record=words.record
            )
    return _closed(view, found, words, json)


def _asked(words: StepWords) -> Any:
    from kernel_compass.api.step_requests import BUDGET_PCT, StepAsked
    from kernel_compass.records.study import StudyLimits

    budget = BUDGET_PCT if words.budget is None else budget_pct_of(words.budget)
    limits = StudyLimits(words.minutes, words.trials)
    return StepAsked(
        budget, limits, words.device, words.calibration, formats=_formats(words.formats)
    )


def _formats(text: str | None) -> tuple[str, ...]:
    """Formats of products; none where none is named.

    Raises:
        UsageError: a list that names none.
    """
    named = words_of(text or "")
    if text is not None and not named:
        raise UsageError("--formats names no format.", "For example bf16, or bf16,w8a16_fp8.")
    return named


def _without_a_run(
    source: StepSource, arguments: Sequence[str], words: StepWords, forms: tuple[bool, bool, bool]
) -> int:
    """A capture, a recording of a study, or a server's trace: nothing is measured."""
    from kernel_compass.api import step_optimizing, step_planning
    from kernel_compass.api.step_requests import BUDGET_PCT
    from kernel_compass.codec.step_recording import is_recording
    from kernel_compass.report.step_study import step_plan_text

    if arguments or source.script or source.module or source.entry:
        found = "--captured and --trace stand in for a run."
        raise UsageError(found, "Name a program, or what was captured of one.")
    if words.minutes is not None or words.trials is not None or words.record is not None:
        found = "--minutes, --trials and --record: nothing is measured of what was captured."
        raise UsageError(found, "Leave them out; or name the program.")
    budget = BUDGET_PCT if words.budget is None else budget_pct_of(words.budget)
    missing = next((p for p in (source.captured, source.trace) if p and not is_file(p)), None)
    if missing is not None:
        raise UsageError(f"There is no file {missing}.", "`capture -o FILE` writes one.")
    if source.captured is not None and is_recording(source.captured):
        given = {"--budget": words.budget, "--formats": words.formats}
        said = ", ".join(name for name, value in given.items() if value is not None)
        if said:
            raise UsageError(f"{said}: a recording has that of its study.", "Leave it out.")
        json, quiet, json_lines = forms
        view = view_of(quiet or json, json_lines)
        with view:
            found_study = step_optimizing.replay_step_recording(source.captured, view.tell)
        return _closed(view, found_study, words, json)
    if source.trace is not None:
        captures = step_planning.captures_of_trace(source.trace, words.calibration)
    else:
        assert source.captured is not None, "one of them is named"
        captures = (step_planning.read_capture(source.captured),)
    for capture in captures:
        plan = step_planning.plan_capture(
            capture, budget, words.calibration, _formats(words.formats)
        )
        if forms[0]:
            emit(_plan_json(plan), None)
            continue
        stages = [plan, *([plan.in_graph] if plan.in_graph else [])]
        parts = [(one.places, [offer.proposal for offer in one.offers]) for one in stages]
        emit(step_plan_text(f"{capture.program}: {capture.step}", parts, capture.not_handled), None)
    return 0


def _plan_json(plan: Any) -> str:
    from kernel_compass.codec.canonical import indented, plain

    def part(one: Any) -> dict[str, Any]:
        return {
            "places": [plain(place) for place in one.places],
            "proposals": [plain(offer.proposal) for offer in one.offers],
        }

    found: bytes = indented(
        {
            "measured": False,
            **part(plan),
            "in_graph": None if plan.in_graph is None else part(plan.in_graph),
            "not_handled": [plain(one) for one in plan.capture.not_handled],
        }
    )
    return found.decode()


def _closed(view: Any, found: Any, words: StepWords, json: bool) -> int:
    """Show what it came to, and put what was accepted into the table if that is wanted."""
    from kernel_compass.api.studies import apply_study
    from kernel_compass.codec.study_document import encode

    if json:
        emit(encode(found.recorded).decode(), None)
    view.close_with(found)
    entries = found.step.entries
    name = found.recorded.study.identifier
    if entries:
        place = words.table or DEFAULT_TABLE
        shown = quote(str(place))
        if words.yes or words.table is not None or view.agrees(len(entries), place):
            apply_study(str(found.folder), place)
            view.say(f"Written to {place}. Use it: kernel-compass run --with {shown} SCRIPT")
            view.say(f"Take it back: kernel-compass revert {name} --table {shown}")
        else:
            view.say(f"Not applied. Apply it: kernel-compass apply {name} --table {shown}")
    return int(found.exit_code)
