"""`optimize` over a user's program: wires capture, actions, measuring, the ledger to the loop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.api.advising import advise
from kernel_compass.api.calibration_choice import capture_calibration
from kernel_compass.api.optimizing import STOPPED
from kernel_compass.api.step_bench import CPU, ProgramBench
from kernel_compass.api.step_capturing import capture_trace, shown_name, step_costs
from kernel_compass.api.step_program import Program, ProgramKind, program_files, program_of
from kernel_compass.api.step_requests import (
    BUDGET_PCT,
    RECORDED,
    StepAsked,
    asked_of,
    checked_program,
    is_step_study,
    program_in,
    request_from,
    request_of,
)
from kernel_compass.api.step_unchanged import check_same_machine, check_same_step
from kernel_compass.codec import step_capture_document, step_recording
from kernel_compass.errors import CalibrationError, UsageError, shortened
from kernel_compass.optimizer.ledger import Ledger, read_study
from kernel_compass.optimizer.ledger_home import find_study, new_identifier
from kernel_compass.optimizer.loop_setup import Tell
from kernel_compass.optimizer.step_answers import RecordedBench, RecordingBench
from kernel_compass.optimizer.step_doors import Group, Offer, StepBench
from kernel_compass.optimizer.step_loop import StepEnd, StepLoop, StepSetup, plan_step
from kernel_compass.optimizer.step_proposers import step_proposers
from kernel_compass.records.advice import FormatAdvice
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.loop import LoopEvent, Stage, Why
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import StepActionKind, StepEntry, StepTrial
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import StepOptions, StepPlace, StepRecording
from kernel_compass.records.step_study import StepFinal, StepStudy
from kernel_compass.records.study import RecordedStudy, Study, StudyLimits
from kernel_compass.records.workload import Precision


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


@dataclass(frozen=True)
class StepPlan:
    """A captured step looked at, and nothing measured."""

    capture: StepCapture
    places: tuple[StepPlace, ...]
    offers: tuple[Offer, ...]
    in_graph: StepPlan | None = None
    """The same step without the time in which its GPU waits: what would be left to do once it is
    in a CUDA graph; `None` = that is not proposed."""


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
    )
    name = identifier or new_identifier(recording.program)
    source = ProblemSource(recording.program, {"program": ProgramKind.SCRIPT.value})
    study = Study(name, request_from(source, asked), recording.environment)
    with Ledger.create(study, folder) as ledger:
        return _run(recorded_bench(recording), recording.capture, asked, ledger, tell)


def plan_capture(
    capture: StepCapture, budget_pct: float = BUDGET_PCT, calibration: str | None = None
) -> StepPlan:
    """Select, group, explain and propose on a captured step; nothing is measured."""
    asked = StepAsked(budget_pct, calibration=calibration)
    places, offers = plan_step(setup_of(capture, asked, ""), capture)
    graph = [o for o in offers if o.proposal.action.kind is StepActionKind.STEP_GRAPH]
    if not graph or capture.step_us is None or capture.idle_us is None:
        return StepPlan(capture, places, offers)
    kernels = tuple(replace(one, gap_us=0.0) for one in capture.kernels)
    busy = capture.step_us - capture.idle_us
    later = replace(capture, kernels=kernels, step_us=busy, idle_us=0.0, in_graph=True)
    inside = plan_step(setup_of(later, asked, ""), later, (graph[0].proposal.action,))
    return StepPlan(capture, places, offers, StepPlan(later, *inside))


def read_capture(path: Path) -> StepCapture:
    """A capture that was written to a file.

    Raises:
        UsageError: it cannot be read.
        CaptureError: it is none.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        found = f"{shortened(str(path))} cannot be read: {error.strerror or error}."
        raise UsageError(found, "Name a file that `kernel-compass capture -o` wrote.") from None
    return step_capture_document.decode(data, shortened(str(path)))


def captures_of_trace(path: Path, calibration: str | None = None) -> tuple[StepCapture, ...]:
    """What a server's own profiler recorded, one capture a rank."""
    return capture_trace(path, calibration)


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


def setup_of(capture: StepCapture, asked: StepAsked, study: str) -> StepSetup:
    """What the loop is given, by the capture and what was asked for alone."""
    machine = _machine(capture, asked.calibration)
    fixed, stream_us = step_costs(capture, asked.calibration)

    def groups(found: StepCapture) -> Sequence[Group]:
        return groups_of(found, fixed, stream_us)

    def speedups(places: Sequence[StepPlace]) -> Mapping[str, float]:
        return {} if machine is None else _speedups(machine, places, asked.budget_pct)

    return StepSetup(
        asked.options,
        asked.budget_pct,
        asked.limits,
        step_proposers(asked.options.configs),
        groups,
        lambda trial, final: _entry(capture, study, trial, final),
        None if machine is None else machine.t0_graph_us.value,
        speedups,
        "" if machine is None else f"the model, calibration {machine.environment.device.name}",
    )


def _machine(capture: StepCapture, word: str | None) -> Calibration | None:
    try:
        return capture_calibration(word, capture.environment.device)
    except CalibrationError:
        if word is not None:
            raise
        return None


def _speedups(
    machine: Calibration, places: Sequence[StepPlace], budget_pct: float
) -> dict[str, float]:
    """What the model says the best format within the budget wins on each product, in situ."""
    works = [one.workload for one in places if one.workload is not None]
    if not works:
        return {}
    found = advise(list(dict.fromkeys(works)), machine, (Regime.COLD,), budget_pct)
    speedups = {}
    for one in found.workloads:
        bf16, *others = one.regimes[0].formats
        best = max((_speedup(bf16, other) for other in others), default=1.0)
        speedups[one.workload.shape_text] = max(best, 1.0)
    return speedups


def _speedup(bf16: FormatAdvice, other: FormatAdvice) -> float:
    if other.within_budget is False or other.precision is Precision.BF16:
        return 1.0
    if bf16.estimate is None or other.estimate is None:
        return 1.0
    return bf16.estimate.time_us / other.estimate.time_us


def _entry(capture: StepCapture, study: str, trial: StepTrial, final: StepFinal) -> StepEntry:
    device = capture.environment.device
    action = trial.proposal.action
    # a product is known by its sizes wherever it is; all else is a change to these very files
    product = action.kind is StepActionKind.PRODUCT
    files, packages = ({}, {}) if product else (dict(capture.files), dict(capture.packages))
    speedup = trial.speedup or final.speedup
    assert speedup is not None, "kept for its speed"
    return StepEntry(
        action,
        GpuModel(device.name or "CPU", device.compute_capability or "0.0", device.sm_count or 1),
        capture.program,
        files,
        study,
        trial.number,
        speedup,
        trial.outputs,
        trial.added_bytes,
        packages,
    )


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
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(step_recording.encode(recording))


__all__ = [
    "CPU",
    "StepAsked",
    "StepOptimized",
    "StepPlan",
    "captures_of_trace",
    "is_step_study",
    "optimize_step",
    "plan_capture",
    "program_of",
    "read_capture",
    "replay_step_recording",
    "resume_step",
    "step_files",
]
