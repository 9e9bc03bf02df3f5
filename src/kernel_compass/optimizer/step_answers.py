"""Benches that write down what another answered, and that answer from what was written down.

A question is what was asked in canonical JSON, so that the same question has the same answer in
whatever order questions come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kernel_compass.codec.canonical import compact, plain, reshaped
from kernel_compass.errors import UsageError
from kernel_compass.optimizer.step_doors import Actions, StepBench
from kernel_compass.records.step_action import StepAction
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import (
    ConfigTime,
    ProductFound,
    StepSampled,
    StepTried,
)
from kernel_compass.records.trial import Reason
from kernel_compass.records.workload import Workload

_Found = TypeVar("_Found")
NOT_RECORDED = "this was not tried when the recording was made"


class RecordingBench:
    """Passes every question on, and keeps the answers.

    Args:
        bench: what answers.
        keep: told of each answer as it comes.
    """

    def __init__(self, bench: StepBench, keep: Callable[[str, Any], None]) -> None:
        self._bench, self._keep = bench, keep

    def capture(self, accepted: Actions) -> StepCapture:
        """As the bench says."""
        return self._kept("capture", [accepted], self._bench.capture(accepted))

    def study(self, workload: Workload, dtype: str) -> ProductFound:
        """As the bench says."""
        return self._kept("study", [workload, dtype], self._bench.study(workload, dtype))

    def rank(self, accepted: Actions, actions: Actions) -> tuple[ConfigTime, ...]:
        """As the bench says."""
        found = self._bench.rank(accepted, actions)
        self._keep(question("rank", [accepted, actions]), {"times": plain(found)})
        return found

    def attempt(self, accepted: Actions, action: StepAction) -> StepTried:
        """As the bench says."""
        found = self._bench.attempt(accepted, action)
        return self._kept("attempt", [accepted, action], found)

    def sample(self, process: int, actions: Actions) -> StepSampled:
        """As the bench says."""
        return self._kept("sample", [process, actions], self._bench.sample(process, actions))

    def _kept(self, name: str, asked: Sequence[Any], found: _Found) -> _Found:
        self._keep(question(name, asked), plain(found))
        return found


class RecordedBench:
    """Answers from a recording; what is not in it, it says so of.

    Args:
        capture: of the untouched step.
        answers: by question.
    """

    def __init__(self, capture: StepCapture, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self._capture = capture
        self._answers = {_renewed(asked): found for asked, found in answers.items()}

    def capture(self, accepted: Actions) -> StepCapture:
        """As recorded.

        Raises:
            UsageError: the recording has another course.
        """
        found = self._answers.get(question("capture", [accepted]))
        if found is not None:
            return reshaped(found, StepCapture)
        if not accepted:
            return self._capture
        raise UsageError("The recording holds no such step.", "Run it with the recording's options")

    def study(self, workload: Workload, dtype: str) -> ProductFound:
        """As recorded; else nothing was found."""
        found = self._answers.get(question("study", [workload, dtype]))
        return ProductFound(None, None, detail=NOT_RECORDED) if found is None else reshaped(
            found, ProductFound
        )  # fmt: skip

    def rank(self, accepted: Actions, actions: Actions) -> tuple[ConfigTime, ...]:
        """As recorded; else none was timed."""
        found = self._answers.get(question("rank", [accepted, actions]))
        if found is None:
            return tuple(ConfigTime(None, NOT_RECORDED) for _ in actions)
        return tuple(reshaped(one, ConfigTime) for one in found["times"])

    def attempt(self, accepted: Actions, action: StepAction) -> StepTried:
        """As recorded; else it was not tried."""
        found = self._answers.get(question("attempt", [accepted, action]))
        if found is None:
            return StepTried(Reason.CANCELLED, NOT_RECORDED)
        return reshaped(found, StepTried)

    def sample(self, process: int, actions: Actions) -> StepSampled:
        """As recorded; else it was not tried."""
        found = self._answers.get(question("sample", [process, actions]))
        if found is None:
            return StepSampled(None, Reason.CANCELLED, NOT_RECORDED)
        return reshaped(found, StepSampled)


_ASKED: Mapping[str, tuple[Any, ...]] = {
    "capture": (Actions,),
    "study": (Workload, str),
    "rank": (Actions, Actions),
    "attempt": (Actions, StepAction),
    "sample": (int, Actions),
}


def _renewed(asked: str) -> str:
    """A question as it is asked now: a record may have got a field since it was written down."""
    name, *parts = json.loads(asked)
    kinds = _ASKED.get(name, ())
    if len(kinds) != len(parts):
        return asked
    return question(name, [reshaped(o, kind) for o, kind in zip(parts, kinds, strict=True)])


def question(name: str, asked: Sequence[Any]) -> str:
    """What is asked, as a text."""
    return compact([name, *map(plain, asked)]).decode()
