"""`optimize` over a user's program: wires capture, actions, measuring, the ledger to the loop."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_compass.api.optimizing import STOPPED
from kernel_compass.api.step_bench import ProgramBench
from kernel_compass.api.step_capturing import shown_name
from kernel_compass.api.step_planning import setup_of
from kernel_compass.api.step_program import Program, ProgramKind, program_files
from kernel_compass.api.step_requests import (
    RECORDED,
    StepAsked,
    asked_of,
    checked_program,
    program_in,
    request_from,
    request_of,
)
from kernel_compass.api.step_unchanged import check_same_machine, check_same_step
from kernel_compass.codec import step_recording
from kernel_compass.optimizer.ledger import Ledger, read_study
from kernel_compass.optimizer.ledger_home import find_study, new_identifier
from kernel_compass.optimizer.loop_setup import Tell
from kernel_compass.optimizer.step_answers import RecordedBench, RecordingBench
from kernel_compass.optimizer.step_doors import StepBench
from kernel_compass.optimizer.step_loop import StepEnd, StepLoop
from kernel_compass.records.loop import LoopEvent, Stage, Why
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import StepOptions, StepRecording
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import RecordedStudy, Study, StudyLimits


@dataclass(frozen=True)
class StepOptimized:
    """What a run of a study over a step came to."""

    recorded: RecordedStudy
    folder: Path
    end: StepEnd

    @property
    def exit_code(self) -> int:
        """0; of a run that the user stopped, as of any other that was interrupted."""
        return STOPPED if self.end.why is Why.STOPPED else 0

    @property
    def step(self) -> StepStudy:
        """What was found."""
        return self.recorded.step or StepStudy()


def optimize_step(
    program: Program,
    asked: StepAsked | None = None,
    tell: Tell = lambda _: None,
    folder: Path | None = None,
    record: Path | None = None,
    identifier: str | None = None,
) -> StepOptimized:
    """Run a new study over a program's step.

    Args:
        program: what is run.
        asked: budget, limits, device.
        tell: told of everything as it happens.
        folder: of its ledger; default: the study's place in the user's data folder.
        record: a file that every answer is written to: the loop runs on it again.
        identifier: of the study; default: from the time and the program.

    Raises:
        KernelCompassError: the program does not run, or has no step.
    """
    asked = asked or StepAsked()
    with _program_bench(program, asked, tell) as bench:
        return _optimized(program, asked, bench, tell, folder, record, identifier)


def _optimized(
    program: Program,
    asked: StepAsked,
    bench: StepBench,
    tell: Tell,
    folder: Path | None,
    record: Path | None,
    identifier: str | None,
) -> StepOptimized:
    tell(LoopEvent(Stage.BASELINE, f"capturing {shown_name(program)}"))
    capture = bench.capture(())
    kept: dict[str, Any] = {}
    if record is not None:
        bench = RecordingBench(bench, kept.__setitem__)
    bench = _Begun(bench, capture)
    name = identifier or new_identifier(shown_name(program))
    study = Study(name, request_of(program, asked), capture.environment)
    try:
        with Ledger.create(study, folder) as ledger:
            return _run(bench, capture, asked, ledger, tell)
    finally:
        if record is not None:
            _write(record, capture, asked, kept)


def resume_step(name: str, tell: Tell = lambda _: None) -> StepOptimized:
    """Go on with a study over a step where an earlier run was ended.

    Raises:
        StudyError: there is none, its files are others by now, or the machine is another one.
    """
    folder = find_study(name)
    recorded = read_study(folder)
    before = recorded.study
    asked = asked_of(before.request)
    if asked.device.startswith(RECORDED):
        return _resume_recorded(folder, before, asked, tell)
    program = checked_program(before.request)
    with _program_bench(program, asked, tell) as bench:
        capture = bench.capture(())
        check_same_machine(before.environment, capture.environment)
        check_same_step(recorded.step, capture)
        with Ledger.resume(folder) as ledger:
            return _run(_Begun(bench, capture), capture, asked, ledger, tell)


def replay_step_recording(
    path: Path,
    tell: Tell = lambda _: None,
    folder: Path | None = None,
    identifier: str | None = None,
    limits: StudyLimits | None = None,
) -> StepOptimized:
    """Run the loop on a recorded study: the same answers, without the program or its machine.

    Raises:
        StudyError: the file is no recording.
    """
    recording = step_recording.read(path)
    asked = StepAsked(
        recording.budget_pct,
        limits or StudyLimits(),
        f"{RECORDED}{path.resolve()}",
        recording.calibration,
        options=replace(StepOptions(), **recording.options),  # type: ignore[arg-type]
        formats=tuple(recording.formats),
    )
    name = identifier or new_identifier(recording.program)
    source = ProblemSource(recording.program, {"program": ProgramKind.SCRIPT.value})
    study = Study(name, request_from(source, asked), recording.environment)
    with Ledger.create(study, folder) as ledger:
        return _run(recorded_bench(recording), recording.capture, asked, ledger, tell)


def step_files(name: str) -> list[tuple[Path, str]]:
    """The files whose code a study's program and its inputs begin with.

    Raises:
        StudyError: there is no such study.
    """
    request = read_study(find_study(name)).study.request
    if str(request.options.get("device", "")).startswith(RECORDED):
        return []
    return program_files(program_in(request))


class _Begun:
    """A bench whose untouched step has been captured already."""

    def __init__(self, bench: StepBench, capture: StepCapture) -> None:
        self._bench, self._capture = bench, capture
        self.study, self.rank = bench.study, bench.rank
        self.attempt, self.sample = bench.attempt, bench.sample

    def capture(self, accepted: tuple[Any, ...]) -> StepCapture:
        """What is known, or what the bench says."""
        return self._bench.capture(accepted) if accepted else self._capture


def _run(
    bench: StepBench, capture: StepCapture, asked: StepAsked, ledger: Ledger, tell: Tell
) -> StepOptimized:
    study = ledger.recorded.study.identifier
    setup = setup_of(capture, asked, study)
    end = StepLoop(setup, bench, ledger, time.monotonic, tell).run()
    return StepOptimized(ledger.recorded, ledger.folder, end)


def _program_bench(program: Program, asked: StepAsked, tell: Tell) -> ProgramBench:
    def say(text: str) -> None:
        tell(LoopEvent(Stage.SCREEN, text))

    return ProgramBench(
        program,
        asked.options,
        asked.budget_pct,
        asked.device,
        asked.calibration,
        asked.product_minutes,
        tell,
        say,
        formats=asked.formats,
    )


def _resume_recorded(folder: Path, before: Study, asked: StepAsked, tell: Tell) -> StepOptimized:
    recording = step_recording.read(Path(asked.device.removeprefix(RECORDED)))
    check_same_machine(before.environment, recording.environment)
    with Ledger.resume(folder) as ledger:
        return _run(recorded_bench(recording), recording.capture, asked, ledger, tell)


def recorded_bench(recording: StepRecording) -> RecordedBench:
    """Answers from a recording."""
    return RecordedBench(recording.capture, recording.answers)


def _write(path: Path, capture: StepCapture, asked: StepAsked, kept: dict[str, Any]) -> None:
    recording = StepRecording(
        capture.program,
        asked.budget_pct,
        capture,
        capture.environment,
        asked.options.kept,
        asked.calibration,
        kept,
        asked.formats,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(step_recording.encode(recording))
