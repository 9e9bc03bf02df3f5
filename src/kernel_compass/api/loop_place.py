"""Where a study runs: its executor, its machine, and what there is to be tried."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_compass.api.calibrations import (
    calibration,
    machine_calibration,
    shipped_calibrations,
)
from kernel_compass.api.loop_recordings import recorded_problem, recorded_spaces
from kernel_compass.api.loop_spaces import FORMATS, MACHINE, SPACES
from kernel_compass.api.places import local_workers
from kernel_compass.api.problems import describe_problem
from kernel_compass.codec import loop_recording
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.codec.json_reading import file_bytes
from kernel_compass.errors import (
    CalibrationError,
    MeasurementCause,
    MeasurementError,
    StudyError,
    UsageError,
    shortened,
)
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.execution.recorded_executor import RecordedExecutor
from kernel_compass.measurement.calibration_store import path_of
from kernel_compass.optimizer.loop_setup import Spaces, ends_of
from kernel_compass.process_family import termination_raises
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.environment import Environment
from kernel_compass.records.execution import Task
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.loop_recording import LoopRecording
from kernel_compass.records.problem import ProblemDescription
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.study import StudyRequest

RECORDED = "recorded:"
EVALUATING = "kernel_compass.api.evaluating"
"""Where workers find the loop's tasks."""
SPACES_TIMEOUT_S = 240.0
MOST_CONFIGS = 400
"""Of a space; the rest is by estimate not worth knowing."""


@dataclass
class Place:
    """Where a study runs, and what is there to be tried."""

    executor: Executor
    device: str
    """As tasks are told."""
    environment: Environment
    problem: ProblemDescription
    calibration: str | None
    spaces: Spaces = field(default_factory=dict)
    keeps_memory: bool = False
    notes: tuple[str, ...] = ()
    """What the user should know of the workers."""

    @property
    def lost(self) -> tuple[str, ...]:
        """Of GPUs, or workers without one, that run nothing: why."""
        return _lost(self.executor) if isinstance(self.executor, LocalExecutor) else ()


@contextmanager
def placed(request: StudyRequest, study: str) -> Iterator[Place]:
    """The place that a request names, ready; nothing of it is left afterwards."""
    device = str(request.options["device"])
    with termination_raises():
        if device.startswith(RECORDED):
            yield _recorded(request, device)
            return
        if device == CPU:
            found = "On a CPU nothing is timed."
            raise UsageError(found, "Name cuda, cuda:0, ..., simulated, or recorded:FILE.")
        with local_workers(device, study) as (executor, inside):
            place = _surveyed(request, executor, inside)
            place.notes += _of_workers(executor)
            yield place


def _of_workers(executor: LocalExecutor) -> tuple[str, ...]:
    """What was ended or lost at their start."""
    swept = tuple(
        f"ended process {one.pid}, which the study {one.study} left when its process "
        f"{one.owner} died: {shortened(one.command)}"
        for one in executor.swept
    )
    return (*swept, *_lost(executor))


def _lost(executor: LocalExecutor) -> tuple[str, ...]:
    return tuple(f"{name} runs nothing: {why}" for name, why in executor.lost.items())


def _recorded(request: StudyRequest, device: str) -> Place:
    recording = _recording(device)
    digest = request.options.get("recording_sha256")
    if digest is not None and digest != of_device(device)["recording_sha256"]:
        found = f"{device.removeprefix(RECORDED)} is not the recording that the study was begun on."
        raise StudyError(found, "Restore it, or start a new study.")
    return Place(
        RecordedExecutor(recording),
        "recorded",
        recording.environment,
        recorded_problem(recording),
        None,
        recorded_spaces(recording, request.formats),
    )


def _surveyed(request: StudyRequest, executor: Executor, device: str) -> Place:
    """Ask a worker what machine it is, and what there is for it."""
    problem = describe_problem(request.source, executor, CPU if device == SIMULATED else device)
    said = _asked(executor, [Task("machine", MACHINE, {"device": device})])["machine"]
    environment = reshaped(said["environment"], Environment)
    name, *notes = _calibration(environment.device.name, device)
    place = Place(
        executor,
        device,
        environment,
        problem,
        name,
        keeps_memory=device != SIMULATED,
        notes=tuple(filter(None, notes)),
    )
    if request.source.sha256 is not None:
        place.spaces = {one.name: _own_spaces(problem) for one in problem.workloads}
        return place
    common = {
        "formats": list(request.formats or FORMATS),
        "device": device,
        "calibration": name,
        "most": MOST_CONFIGS,
    }
    tasks = [
        Task(one.name, SPACES, {"workload": plain(one), **common}, SPACES_TIMEOUT_S)
        for one in problem.workloads
    ]
    found = _asked(executor, tasks)
    place.spaces = {
        name: tuple(reshaped(one, CandidateSpace) for one in answer["spaces"])
        for name, answer in found.items()
    }
    return place


def _own_spaces(problem: ProblemDescription) -> tuple[CandidateSpace, ...]:
    """The candidates that a problem's file brings; nothing is known of them beforehand."""
    return tuple(
        CandidateSpace(one.name, one.space, source=problem.name) for one in problem.candidates
    )


def _asked(executor: Executor, tasks: Sequence[Task]) -> dict[str, Mapping[str, Any]]:
    found = {}
    for end in ends_of(executor, tasks):
        if end.answer is None:
            detail = end.failure.detail if end.failure else "no answer"
            raise MeasurementError(
                MeasurementCause.WORKER_DIED,
                f"A worker could not say what there is ({end.identifier}): {detail}",
                "Look at `kernel-compass doctor`.",
            )
        found[end.identifier] = end.answer
    return found


def _calibration(gpu: str | None, device: str) -> tuple[str | None, str | None]:
    """The calibration that floors rest on: this machine's own, or the one of its name.

    And what is wrong with this machine's own, where it cannot be used.
    """
    if device == SIMULATED:
        return "h200", None
    wrong = None
    try:
        own = machine_calibration(gpu)
        if own is not None:
            return str(path_of(own.environment.device.name, own.environment.driver)), None
    except CalibrationError as error:
        wrong = f"this machine's calibration is not used: {error}"
    return next((n for n in shipped_calibrations() if _is_of(n, gpu)), None), wrong


def _is_of(shipped: str, gpu: str | None) -> bool:
    return calibration(shipped).environment.device.name == gpu


def _recording(device: str) -> LoopRecording:
    return loop_recording.read(Path(device.removeprefix(RECORDED)))


def of_device(device: str) -> dict[str, str]:
    """What a study keeps of the device that it was begun on."""
    if not device.startswith(RECORDED):
        return {"device": device}
    path = Path(device.removeprefix(RECORDED)).resolve()
    try:
        digest = hashlib.sha256(file_bytes(path)).hexdigest()
    except FileNotFoundError:
        raise UsageError(f"There is no recording {path}.", "Name recorded:FILE.") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        found = f"The recording {path} cannot be read: {said}."
        raise UsageError(found, "Name recorded:FILE, a recording of the loop.") from None
    return {"device": f"{RECORDED}{path}", "recording_sha256": digest}
