"""The executor of this machine: a worker per GPU, or several without one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.machine_loss import REMEDY, MachineLost
from kernel_compass.execution.slot import Slot
from kernel_compass.execution.worker_mark import Swept, sweep
from kernel_compass.records.execution import Task, TaskEnd, TaskFailure
from kernel_compass.records.trial import Reason

_JOIN_S = 90.0
_CANCELLED = TaskFailure(Reason.CANCELLED, "It was cancelled before it began.")


class LocalExecutor:
    """Tasks in workers of this machine; each `Executor` method is as the protocol says.

    Args:
        folder: workers write below it, each to a folder of its own.
        gpus: one worker each, by what `CUDA_VISIBLE_DEVICES` calls it (number or UUID).
        workers: where no GPU is given: how many, none of which sees a GPU.
        study: its name is in the mark of every process.
        preload: modules that workers find imported (`torch`, `triton`).
        bounds: of each worker.
        check: run in a fresh worker after a task failed in a way that the machine may be to blame
            for. Where it fails too, that worker's place is lost, and the task goes to another;
            one that was in flight at two such losses goes to no third: `ended` raises.

    Raises:
        MeasurementError: workers cannot be started.
        UsageError: no worker is asked for.
    """

    def __init__(
        self,
        folder: Path,
        gpus: Sequence[str] = (),
        workers: int = 1,
        study: str = "",
        preload: Sequence[str] = (),
        bounds: Bounds | None = None,
        check: Task | None = None,
    ) -> None:
        places = list(gpus) or [""] * workers
        if not places:
            raise UsageError("No worker is asked for.", "Ask for one at least.")
        self.swept: tuple[Swept, ...] = sweep()
        """Workers of owners that are gone, which were ended at the start."""
        bounds = bounds or Bounds()
        memory_bytes = bounds.memory_of_each(len(places))
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._running: dict[str, bool] = {}
        """Identifiers; whether they are cancelled."""
        self._ends: deque[TaskEnd] = deque()
        self._slots: dict[int, Slot] = {}
        self._fault: BaseException | None = None
        """Why the last slot was lost."""
        self._lost: dict[int, BaseException] = {}
        self._in_flight_at_loss: set[str] = set()
        """Identifiers of tasks that a place was lost with."""
        self._suspect: str | None = None
        """The one that two were lost with: nothing is begun any more."""
        self._is_closed = False
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=(
                    i,
                    study,
                    folder.resolve() / f"worker-{i}",
                    gpu,
                    preload,
                    bounds,
                    memory_bytes,
                    check,
                ),
                name=f"kernel-compass local/{i}",
                daemon=True,
            )
            for i, gpu in enumerate(places)
        ]
        self._names = [f"GPU {gpu}" if gpu else f"worker {i}" for i, gpu in enumerate(places)]
        self._starting = len(self._threads)
        for thread in self._threads:
            thread.start()
        self._await_start()

    @property
    def capacity(self) -> int:
        """Tasks that run at once."""
        return len(self._slots)

    @property
    def missing(self) -> dict[str, str]:
        """Modules that could not be preloaded, and why."""
        return {name: why for slot in self._slots.values() for name, why in slot.missing.items()}

    @property
    def lost(self) -> dict[str, str]:
        """GPUs, or workers without one, that run nothing any more; and why."""
        with self._changed:
            return {self._names[number]: str(why) for number, why in sorted(self._lost.items())}

    def submit(self, task: Task) -> None:
        """Take a task; returns at once."""
        with self._changed:
            if self._is_closed:
                raise UsageError("The executor is closed.", "Make another one.")
            known = {waiting.identifier for waiting in self._waiting} | self._running.keys()
            if task.identifier in known:
                raise UsageError(
                    f"A task {task.identifier!r} has not ended yet.",
                    "Give each task its own identifier.",
                )
            self._waiting.append(task)
            self._changed.notify_all()

    def ended(self, timeout_s: float | None = None) -> Iterator[TaskEnd]:
        """Tasks as they end, until none is left or the time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._changed:
                while not self._ends:
                    if not (self._waiting or self._running):
                        return
                    self._raise_fault()
                    rest = None if deadline is None else deadline - time.monotonic()
                    if rest is not None and rest <= 0:
                        return
                    self._changed.wait(rest)
                end = self._ends.popleft()
            yield end

    def cancel(self, identifier: str) -> bool:
        """End a task, running or waiting."""
        with self._changed:
            for task in self._waiting:
                if task.identifier == identifier:
                    self._waiting.remove(task)
                    self._ends.append(TaskEnd(identifier, None, _CANCELLED, 0.0, ""))
                    self._changed.notify_all()
                    return True
            if identifier not in self._running:
                return False
            self._running[identifier] = True
            return True

    def close(self) -> None:
        """End all tasks and workers; none of their processes is left.

        Raises:
            MeasurementError: some do not end.
        """
        with self._changed:
            self._is_closed = True
            for task in self._waiting:
                self._ends.append(TaskEnd(task.identifier, None, _CANCELLED, 0.0, ""))
            self._waiting.clear()
            self._running = dict.fromkeys(self._running, True)
            self._changed.notify_all()
        deadline = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        left = [n for n, t in zip(self._names, self._threads, strict=True) if t.is_alive()]
        if left:
            raise MeasurementError(
                MeasurementCause.WORKER_DIED,
                f"{', '.join(left)} did not end within {_JOIN_S:g} s.",
                "A driver may hold it: look at `nvidia-smi` and `dmesg`.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except MeasurementError as late:
            if error is None:
                raise
            error.add_note(str(late))  # what went wrong first is what is raised

    def _await_start(self) -> None:
        """Wait until each has started or failed: then, whichever came first, it is decided once.

        Those that started go on; without any there is no executor.
        """
        try:
            with self._changed:
                while self._starting:
                    self._changed.wait()
        except BaseException:
            self.close()
            raise
        if len(self._lost) == len(self._threads):
            self.close()
            raise self._none_started()

    def _none_started(self) -> BaseException:
        """What is said where no worker could be started."""
        first = self._lost[min(self._lost)]
        if not isinstance(first, MeasurementError):
            return first
        where = ", ".join(self._names)
        return MeasurementError(first.cause, f"{where}: {first.found}", first.remedy)

    def _serve(
        self,
        number: int,
        study: str,
        folder: Path,
        gpu: str,
        preload: Sequence[str],
        bounds: Bounds,
        memory_bytes: int,
        check: Task | None,
    ) -> None:
        """What a slot's thread does, from its start to its end."""
        slot = None
        variables = {"CUDA_VISIBLE_DEVICES": gpu}
        try:
            name = f"local/{number}"
            slot = Slot(name, study, folder, variables, preload, bounds, memory_bytes, check)
            self._start(number, slot)
            while (task := self._next()) is not None:
                self._run(slot, task)
        except BaseException as error:  # of the slot, and of no task
            self._lose(number, error, starts=slot is None)
        finally:
            if slot is not None:
                slot.close()

    def _next(self) -> Task | None:
        with self._changed:
            while not self._is_closed and (self._suspect is not None or not self._waiting):
                self._changed.wait()
            if self._is_closed:
                return None
            task = self._waiting.popleft()
            self._running[task.identifier] = False
            return task

    def _run(self, slot: Slot, task: Task) -> None:
        try:
            end = slot.run(task, lambda: self._running[task.identifier])
        except BaseException as error:
            with self._changed:  # it has no end; another slot may run it
                if isinstance(error, MachineLost):
                    self._count_loss(task.identifier)
                if self._running.pop(task.identifier):
                    self._ends.append(TaskEnd(task.identifier, None, _CANCELLED, 0.0, slot.name))
                else:
                    self._waiting.appendleft(task)
                self._changed.notify_all()
            raise
        with self._changed:
            del self._running[task.identifier]
            self._ends.append(end)
            self._changed.notify_all()
        if slot.fault is not None:
            raise slot.fault

    def _count_loss(self, identifier: str) -> None:
        if identifier in self._in_flight_at_loss:
            self._suspect = identifier
        self._in_flight_at_loss.add(identifier)

    def _start(self, number: int, slot: Slot) -> None:
        with self._changed:
            self._slots[number] = slot
            self._starting -= 1
            self._changed.notify_all()

    def _lose(self, number: int, error: BaseException, starts: bool) -> None:
        """A slot that cannot go on: the others do; without any, the next to wait is told."""
        with self._changed:
            self._slots.pop(number, None)
            self._lost[number] = self._fault = error
            self._starting -= starts
            self._changed.notify_all()

    def _raise_fault(self) -> None:
        if self._fault is None or self._is_closed or (self._slots and self._suspect is None):
            return
        why = self._fault.found if isinstance(self._fault, MeasurementError) else str(self._fault)
        found = f"No worker is left: {why}"
        if self._suspect is not None and self._slots:
            found = f"Two places were lost with {self._suspect!r}; no third is risked. {why}"
        raise MeasurementError(MeasurementCause.MACHINE_LOST, found, REMEDY) from self._fault
