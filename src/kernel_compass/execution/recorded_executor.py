"""An executor that plays a recording back: the whole loop, without the machine.

It answers the same tasks with the same JSON as workers do. Noise is drawn from a seed of what is
asked, so the same question has the same answer, in whatever order questions come.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.records.execution import Task, TaskEnd, TaskFailure
from kernel_compass.records.loop_recording import (
    LoopRecording,
    RecordedCandidate,
    RecordedWorkload,
)
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate, Reason

SCREEN_PAIRS = 30
"""What a recorded screen counts as."""
WORKER = "recorded/0"
_Z95 = 1.96
_LAUNCHES = 20
JUDGED = frozenset(Reason) - {
    Reason.BUILD_FAILED,
    Reason.COMPILE_TIMEOUT,
    Reason.RUN_TIMEOUT,
    Reason.ILLEGAL_ACCESS,
    Reason.CRASHED,
    Reason.EXITED,
    Reason.OUT_OF_MEMORY,
    Reason.TOO_MUCH_OUTPUT,
    Reason.RAISED,
}
"""Reasons that a judgement gives; the others are how a task fails."""


class RecordedExecutor:
    """Each `Executor` method is as the protocol says; tasks end in the order they came in."""

    def __init__(self, recording: LoopRecording, capacity: int = 1) -> None:
        self._recording = recording
        self._workloads = {one.workload.name: one for one in recording.workloads}
        self._found = {
            name: {_candidate(c).key: c for c in one.candidates}
            for name, one in self._workloads.items()
        }
        self._capacity = capacity
        self._waiting: deque[Task] = deque()
        self._ends: deque[TaskEnd] = deque()
        self._is_closed = False

    @property
    def capacity(self) -> int:
        """Tasks that run at once, as it is said."""
        return self._capacity

    def submit(self, task: Task) -> None:
        """Take a task; it is answered when its end is asked for."""
        if self._is_closed:
            raise UsageError("The executor is closed.", "Make another one.")
        if any(task.identifier == other.identifier for other in self._waiting):
            found = f"A task {task.identifier!r} has not ended yet."
            raise UsageError(found, "Give each task its own identifier.")
        self._waiting.append(task)

    def ended(self, timeout_s: float | None = None) -> Iterator[TaskEnd]:
        """Tasks as they end, until none is left."""
        del timeout_s  # nothing takes time
        while self._ends or self._waiting:
            yield self._ends.popleft() if self._ends else self._end(self._waiting.popleft())

    def cancel(self, identifier: str) -> bool:
        """End a task that waits."""
        for task in self._waiting:
            if task.identifier == identifier:
                self._waiting.remove(task)
                failure = TaskFailure(Reason.CANCELLED, "It was cancelled before it began.")
                self._ends.append(TaskEnd(identifier, None, failure, 0.0, ""))
                return True
        return False

    def close(self) -> None:
        """End all tasks."""
        for task in list(self._waiting):
            self.cancel(task.identifier)
        self._is_closed = True

    def _end(self, task: Task) -> TaskEnd:
        name = task.function.rpartition(":")[2]
        answer = getattr(self, f"_{name}", None)
        if answer is None:
            failure = TaskFailure(Reason.RAISED, f"A recording has no answer to {name}.")
            return TaskEnd(task.identifier, None, failure, 0.0, WORKER)
        found = answer(task.arguments)
        if isinstance(found, TaskFailure):
            return TaskEnd(task.identifier, None, found, 0.0, WORKER)
        return TaskEnd(task.identifier, found, None, 0.0, WORKER)

    def _baseline_task(self, a: Mapping[str, Any]) -> dict[str, Any] | TaskFailure:
        workload = self._workloads.get(a["workload"]["name"])
        if workload is None:
            return TaskFailure(Reason.NOT_SUPPORTED, "The recording has no such workload.")
        regimes = [Regime(name) for name in a["regimes"]]
        missing = [regime.value for regime in regimes if regime not in workload.baseline_us]
        if missing:
            return TaskFailure(
                Reason.CANNOT_BE_TIMED, f"The recording has no baseline in {', '.join(missing)}."
            )
        return {
            "regimes": [
                {
                    "regime": regime.value,
                    "time_us": workload.baseline_us[regime],
                    "floor_us": workload.floors_us.get(regime),
                }
                for regime in regimes
            ],
        }

    def _screen_task(self, a: Mapping[str, Any]) -> dict[str, Any] | TaskFailure:
        workload, found = self._candidate(a["workload"]["name"], a["candidate"])
        if isinstance(found, TaskFailure):
            return found
        if found.reason is not None and found.reason not in JUDGED:
            return TaskFailure(found.reason, found.detail)
        judgement: dict[str, Any] = {
            "reason": found.reason and found.reason.value,
            "detail": found.detail or "nothing was found against it",
            "fidelity_error_pct": found.fidelity_error_pct,
            "format_error_pct": found.format_error_pct,
            "unseen": [],
        }
        regimes = [] if found.reason else a["regimes"]
        missing = [name for name in regimes if Regime(name) not in found.times_us]
        if missing:
            return TaskFailure(Reason.CANNOT_BE_TIMED, f"Not recorded in {', '.join(missing)}.")
        return {
            "judgement": judgement,
            "regimes": [self._screened(a, workload, found, Regime(name)) for name in regimes],
            "added_bytes": found.added_bytes,
        }

    def _finals_task(self, a: Mapping[str, Any]) -> dict[str, Any] | TaskFailure:
        parts = []
        for final in a["finals"]:
            workload, found = self._candidate(final["workload"]["name"], final["candidate"])
            if isinstance(found, TaskFailure):
                return found
            if found.reason is not None:
                return TaskFailure(found.reason, found.detail)
            samples = [
                asdict(self._sampled(a, workload, found, Regime(name)))
                for name in a["regimes"]
                if Regime(name) in found.times_us
            ]
            parts.append({"samples": samples})
        return {"finals": parts}

    def _explain_task(self, a: Mapping[str, Any]) -> dict[str, Any]:
        missing = {"unavailable": "the recording has no counters"}
        return {"counted": [missing for _ in a["finals"]]}

    def _candidate(
        self, name: str, asked: Mapping[str, Any]
    ) -> tuple[RecordedWorkload, RecordedCandidate | TaskFailure]:
        workload = self._workloads[name]
        key = Candidate(asked["implementation"], asked["config"], asked["format"]).key
        found = self._found[name].get(key)
        if found is None:
            return workload, TaskFailure(Reason.NOT_SUPPORTED, "It is not in the recording.")
        return workload, found

    def _screened(
        self,
        a: Mapping[str, Any],
        workload: RecordedWorkload,
        found: RecordedCandidate,
        regime: Regime,
    ) -> dict[str, Any]:
        draw = self._random(a["seed"], workload, found, regime, "screen")
        spread = self._recording.noise_pct / 100 / math.sqrt(SCREEN_PAIRS)
        ratio = workload.baseline_us[regime] / found.times_us[regime]
        estimate = ratio * math.exp(draw.gauss(0, spread))
        half = math.exp(_Z95 * spread)
        return {
            "regime": regime.value,
            "incumbent_us": workload.baseline_us[regime],
            "candidate_us": workload.baseline_us[regime] / estimate,
            "low": estimate / half,
            "estimate": estimate,
            "high": estimate * half,
        }

    def _sampled(
        self,
        a: Mapping[str, Any],
        workload: RecordedWorkload,
        found: RecordedCandidate,
        regime: Regime,
    ) -> PairedSamples:
        recording, process = self._recording, a["process"]
        draw = self._random(a["seed"], workload, found, regime, f"process {process}")
        placed = math.exp(draw.gauss(0, recording.process_noise_pct / 100))
        baseline, candidate = workload.baseline_us[regime], found.times_us[regime] * placed
        noise = recording.noise_pct / 100 / math.sqrt(2)
        pairs = range(a["pairs"])
        return PairedSamples(
            tuple(baseline * math.exp(draw.gauss(0, noise)) for _ in pairs),
            tuple(candidate * math.exp(draw.gauss(0, noise)) for _ in pairs),
            regime,
            LaunchMode.GRAPH,
            _LAUNCHES,
            process,
            environment=recording.environment,
        )

    @staticmethod
    def _random(
        seed: int,
        workload: RecordedWorkload,
        found: RecordedCandidate,
        regime: Regime,
        what: str,
    ) -> random.Random:
        key = _candidate(found).key
        text = repr((seed, workload.workload.name, key, regime.value, what))
        return random.Random(hashlib.sha256(text.encode()).digest())


def _candidate(found: RecordedCandidate) -> Candidate:
    return Candidate(found.implementation, found.config, found.format)
