"""The bench of this machine: questions are answered by processes apart."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kernel_compass
from kernel_compass.analysis.op_names import target_of
from kernel_compass.api import step_tasks
from kernel_compass.api.loop_requests import study_request
from kernel_compass.api.optimizing import optimize
from kernel_compass.api.step_capturing import capture_in, capture_program, shown_name
from kernel_compass.api.step_session import MOST_TASKS, Doubt, StepSession
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import (
    KernelCompassError,
    MeasurementCause,
    MeasurementError,
    UsageError,
)
from kernel_compass.execution.tasks import run_task
from kernel_compass.optimizer.product_choices import product_budget_pct, product_found
from kernel_compass.optimizer.step_doors import Actions
from kernel_compass.records.loop import LoopEvent
from kernel_compass.records.step_action import StepAction
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import (
    PROCESS_FAULTS,
    WRONG_RESULTS,
    ConfigTime,
    ProductFound,
    StepOptions,
    StepSampled,
    StepTried,
)
from kernel_compass.records.step_program import Program
from kernel_compass.records.trial import Reason
from kernel_compass.records.workload import Workload

_REASONS = {
    MeasurementCause.TIMEOUT: Reason.RUN_TIMEOUT,
    MeasurementCause.OUT_OF_MEMORY: Reason.OUT_OF_MEMORY,
    MeasurementCause.WORKER_DIED: Reason.CRASHED,
    MeasurementCause.CALLABLE_FAILED: Reason.RAISED,
}
STDERR = 2
CPU = "cpu"
HIDE_GPUS = {"CUDA_VISIBLE_DEVICES": ""}
NO_PRODUCTS = "products are studied on a GPU alone"


@dataclass
class ProgramBench:
    """A program on this machine.

    Args:
        program: what is run.
        options: how.
        budget_pct: of errors.
        device: `cuda`, `cuda:N`, or `cpu`.
        calibration: what floors rest on; `None` = this machine's.
        product_minutes: of the study of one product.
        tell: told of what studies of products do.
        say: told in a line what a process does.
        formats: that products may be computed in; none = all that fit the budget.
    """

    program: Program
    options: StepOptions
    budget_pct: float
    device: str = "cuda"
    calibration: str | None = None
    product_minutes: float = 1.5
    tell: Callable[[LoopEvent], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    folder: str = field(default_factory=os.getcwd)
    formats: tuple[str, ...] = ()
    most: int = MOST_TASKS
    """Trials of one process, inside of a `with` block; outside of one it is one."""
    _in_graph: bool = False
    _steps: int | None = None

    def __post_init__(self) -> None:
        limit = self.options.start_timeout_s + self.options.run_timeout_s
        self._session = StepSession(self._environment(), limit)

    def __enter__(self) -> ProgramBench:
        self._session.most = self.most
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def capture(self, accepted: Actions) -> StepCapture:
        """The step as it is; with changes on, captured in a process that puts them on."""
        if not accepted:
            with _visible({**self._environment(), "PYTHONPATH": _path()}):
                found = capture_program(
                    self.program,
                    self.calibration,
                    self.options.start_timeout_s,
                    target_stdout=STDERR,
                )
            self._in_graph = found.in_graph
            return found
        with tempfile.TemporaryDirectory(prefix="kernel-compass-") as place:
            asked = {**self._asked(accepted), "place": place, "name": shown_name(self.program)}
            graph_us = self._ask("capture_task", asked, _never)["graph_us"]
            found = capture_in(Path(place), self.calibration)
        if graph_us is None:
            return found
        kernels = tuple(replace(one, gap_us=0.0) for one in found.kernels)
        return replace(found, kernels=kernels, step_us=graph_us, idle_us=0.0, in_graph=True)

    def study(self, workload: Workload, dtype: str) -> ProductFound:
        """Run a study of the product alone, with its own ledger and a larger budget."""
        del dtype  # implementations take bf16, which is all that is proposed
        if self.device == CPU:
            return ProductFound(None, None, detail=NO_PRODUCTS)
        self._session.make_room()
        try:
            request = study_request(
                target_of(workload),
                budget_pct=product_budget_pct(self.budget_pct),
                formats=self.formats,
                minutes=self.product_minutes,
            )
            found = optimize(request, self.device, self.tell)
        except KernelCompassError as error:
            return ProductFound(None, None, detail=f"its study ended: {error.found}")
        name = found.recorded.study.identifier
        accepted = found.recorded.accepted
        if not accepted:
            detail = f"alone nothing was faster in every regime (study {name})"
            if not any(one.reason is not Reason.OVER_BUDGET for one in found.recorded.trials):
                minutes = f"{self.product_minutes:g} minutes"
                detail = f"nothing was timed in its study of {minutes} (study {name})"
            return ProductFound(name, None, detail=detail)
        return product_found(name, accepted[0], found.recorded.trials)

    def rank(self, accepted: Actions, actions: Actions) -> tuple[ConfigTime, ...]:
        """All in one process; where that process dies, and was fresh, none is known."""
        asked = {**self._asked(accepted), "actions": [plain(one) for one in actions]}
        try:
            answer = self._ask("rank_task", asked, _none_runs)
        except KernelCompassError as error:
            return tuple(ConfigTime(None, error.found) for _ in actions)
        return tuple(reshaped(one, ConfigTime) for one in answer["times"])

    def attempt(self, accepted: Actions, action: StepAction) -> StepTried:
        """In a process that nothing before it left a trace in; its end is this change's alone."""
        asked = {**self._asked(accepted), "action": plain(action)}
        try:
            answer = self._ask("attempt_task", asked, _against)
        except KernelCompassError as error:
            return StepTried(_reason(error), error.found)
        return reshaped(answer, StepTried)

    def sample(self, process: int, actions: Actions) -> StepSampled:
        """In a fresh process; all take as many steps a sample as the first chose."""
        asked = {**self._asked(actions), "process": process, "steps": self._steps}
        self._session.close()  # its memory is the fresh process's
        limit = self.options.start_timeout_s + self.options.run_timeout_s
        variables = self._environment()
        try:
            answer = run_task(f"{step_tasks.MODULE}:sample_task", asked, None, limit, variables)
        except KernelCompassError as error:
            return StepSampled(None, _reason(error), error.found)
        self._steps = answer.pop("steps")
        return reshaped(answer, StepSampled)

    def _asked(self, accepted: Actions) -> dict[str, Any]:
        return {
            "program": plain(self.program),
            "folder": self.folder,
            "accepted": [plain(one) for one in accepted],
            "options": plain(self.options),
            "budget_pct": self.budget_pct,
            "in_graph": self._in_graph,
        }

    def _ask(self, task: str, asked: Mapping[str, Any], doubt: Doubt) -> dict[str, Any]:
        def told(progress: dict[str, Any]) -> None:
            if progress.get("phase") == "rank":
                self.say(f"configuration {progress['done'] + 1} of {progress['of']}")

        return self._session.ask(f"{step_tasks.MODULE}:{task}", asked, told, doubt)

    def _environment(self) -> dict[str, str]:
        """What the program's process sees of GPUs."""
        if self.device == CPU:
            return dict(HIDE_GPUS)
        kind, _, index = self.device.partition(":")
        if kind != "cuda" or (index and not index.isdecimal()):
            raise UsageError(f"{self.device!r} is no device.", "Name cuda, cuda:0, ..., or cpu.")
        return {"CUDA_VISIBLE_DEVICES": index} if index else {}


def _never(_: Mapping[str, Any]) -> bool:
    return False


def _against(answer: Mapping[str, Any]) -> bool:
    """Whether a trial failed, or its results were wrong."""
    return answer["reason"] in PROCESS_FAULTS | WRONG_RESULTS


def _none_runs(answer: Mapping[str, Any]) -> bool:
    return all(one["time_us"] is None for one in answer["times"])


def _path() -> str:
    """This very package before an installed one, as in every process that a task runs in."""
    here = str(Path(kernel_compass.__file__).parents[1])
    known = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([here, known]) if known else here


def _reason(error: KernelCompassError) -> Reason:
    if isinstance(error, MeasurementError):
        return _REASONS.get(error.cause, Reason.CANNOT_BE_TIMED)
    return Reason.RAISED


@contextmanager
def _visible(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables set while a process is started."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
