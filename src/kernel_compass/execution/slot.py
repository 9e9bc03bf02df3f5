"""A place where one task runs at a time: a worker, renewed when it is spent."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import kernel_compass
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.execution.attempt import Attempt, Ending
from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.control_group import new_control_group
from kernel_compass.execution.forker_handle import Forker, Worker
from kernel_compass.execution.machine_loss import (
    PAUSE_S,
    TRIES,
    MachineLost,
    may_be_the_machine,
)
from kernel_compass.execution.worker_environment import WorkerFolders, without_secrets
from kernel_compass.execution.worker_loop import WorkerSettings
from kernel_compass.execution.worker_mark import new_worker_mark
from kernel_compass.process_family import marked
from kernel_compass.records.execution import Task, TaskEnd


class Slot:
    """One worker at a time, on one GPU or on none.

    Args:
        name: of where it runs, `local/0`.
        study: whose mark its processes carry.
        folder: what its workers write to.
        variables: set for its workers beside ours; `CUDA_VISIBLE_DEVICES` for one.
        preload: modules that are imported once and not by every worker.
        bounds: of each worker.
        memory_bytes: its limit.
        check: what is run in a fresh worker after a task failed in a way that the machine may be
            to blame for; `None` = nothing.

    Raises:
        MeasurementError: no worker can be started.
    """

    def __init__(
        self,
        name: str,
        study: str,
        folder: Path,
        variables: Mapping[str, str],
        preload: Sequence[str],
        bounds: Bounds,
        memory_bytes: int,
        check: Task | None = None,
    ) -> None:
        self.name = name
        self._check = check
        self._study = study
        self._folders = WorkerFolders(folder)
        self._variables = dict(variables)
        self._preload = tuple(preload)
        self._bounds = bounds
        self._memory_bytes = memory_bytes
        self._worker: Worker | None = None
        self._forker = self._new_forker()
        self.missing = dict(self._forker.missing)
        """Modules that could not be preloaded, and why."""
        self.fault: MeasurementError | None = None
        """Why no more tasks can run here, once that is so."""

    def run(self, task: Task, is_cancelled: Callable[[], bool]) -> TaskEnd:
        """Run a task to its end, whatever it does.

        One that fails in a way that another may be to blame for, is run again in a fresh worker.
        After one that fails in a way that the machine may be to blame for, that is checked.

        Raises:
            MachineLost: the machine is to blame, as far as can be told; the task has no end.
            MeasurementError: a worker cannot be started.
        """
        start = time.monotonic()
        ending = self._attempt(task, is_cancelled)
        notes = ending.notes
        if ending.is_doubtful and ending.failure is not None and not (self.fault or is_cancelled()):
            first = ending.failure
            ending = self._attempt(task, is_cancelled)
            notes = (f"First {first.reason.value}: {first.detail} Run again.", *ending.notes)
        wall_s = time.monotonic() - start
        if ending.failure is not None and may_be_the_machine(ending.failure):
            broken = self._broken(is_cancelled)
            if broken is not None:
                gpu = self._variables.get("CUDA_VISIBLE_DEVICES")
                place = f"GPU {gpu}" if gpu else self.name
                raise MachineLost(place, task.identifier, ending.failure, broken)
        return TaskEnd(task.identifier, ending.answer, ending.failure, wall_s, self.name, notes)

    def close(self) -> None:
        """End the worker and all there is of it."""
        self._forker.end()
        self._drop_worker()

    def _broken(self, is_cancelled: Callable[[], bool]) -> str | None:
        """Why no task would run here; `None` = one does, or nobody waits for the answer."""
        if self.fault is not None:
            return str(self.fault.found)
        if self._check is None:
            return None
        found = None
        for number in range(TRIES):
            if number:
                time.sleep(PAUSE_S)
            if is_cancelled():
                return None
            try:
                ending = self._attempt(self._check, is_cancelled)
            except MeasurementError as error:
                return str(error.found)
            if ending.failure is None or is_cancelled():
                return None
            found = f"{ending.failure.reason.value}: {ending.failure.detail}"
            if self.fault is not None:
                break
        return found

    def _attempt(self, task: Task, is_cancelled: Callable[[], bool]) -> Ending:
        if task.fresh and self._worker is not None and self._worker.tasks_done:
            self._renew()
        worker = self._ready_worker()
        attempt = Attempt(
            task, worker, self._forker, self._bounds, self._memory_bytes, is_cancelled
        )
        try:
            ending = attempt.run(sys.path)
        except BaseException:
            self._renew()
            raise
        if ending.is_spent or task.fresh:
            try:
                self._renew()
            except MeasurementError as error:  # the task has its end; the next ones go elsewhere
                self.fault = error
        return ending

    def _ready_worker(self) -> Worker:
        if self._worker is not None and self._forker.exit_code(self._worker) is not None:
            self._renew()  # it ended between two tasks: nobody's fault
        if self._forker.is_gone:
            self._renew()
        if self._worker is None:
            self._folders.make()
            group = self._forker.group
            self._worker = self._forker.start_worker(
                WorkerSettings(
                    str(self._folders.root),
                    self._bounds.leave_s,
                    None if group is None else str(group.folder),
                )
            )
        return self._worker

    def _renew(self) -> None:
        """End the worker and all that it started; the next task gets another."""
        left = [] if self._forker.is_gone else self._forker.end_workers()
        self._drop_worker()
        if self._forker.is_gone:
            self._forker.end()
            self._forker = self._new_forker()
        if left:
            raise MeasurementError(
                MeasurementCause.WORKER_DIED,
                f"Process {left[0].pid} of {self.name} was killed and does not end.",
                "A driver may hold it: look at `nvidia-smi` and `dmesg`; the GPU may need a reset.",
            )

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _new_forker(self) -> Forker:
        mark = new_worker_mark(self._study)
        self._folders.make()
        group = new_control_group(
            f"kernel-compass-{mark.nonce}", self._memory_bytes, self._bounds.threads
        )
        return Forker(
            mark,
            marked(self._environment(), mark.text),
            self._preload,
            self._bounds.start_timeout_s,
            group,
        )

    def _environment(self) -> dict[str, str]:
        ours = without_secrets(os.environ)
        here = str(Path(kernel_compass.__file__).parents[1])
        known = ours.get("PYTHONPATH", "")
        path = os.pathsep.join([here, known]) if known else here
        return {**ours, "PYTHONPATH": path, **self._folders.variables(), **self._variables}
