"""One task in one worker: asked, watched, and its end given a reason."""

from __future__ import annotations

import json
import secrets
import select
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_compass.errors import shortened
from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.candidate_failures import is_fatal
from kernel_compass.execution.family_watch import FamilyWatch, memory_exceeded
from kernel_compass.execution.forker_handle import Forker, Worker
from kernel_compass.execution.process_table import Process
from kernel_compass.execution.task_channel import message_of
from kernel_compass.execution.task_pipes import LARGEST_LINE
from kernel_compass.execution.worker_loop import LOST_PIPE
from kernel_compass.library_work import is_compile_worker, process_cpu_time_ns
from kernel_compass.records.execution import SPENT, Task, TaskFailure
from kernel_compass.records.trial import Reason

TICK_S = 0.02
_LAST_LINES = 4
_NEWS_S = 0.5
"""Within which we are told that a worker has ended whose pipe has closed."""

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_DOUBTFUL = (Reason.CRASHED, Reason.EXITED, Reason.ILLEGAL_ACCESS, Reason.OUT_OF_MEMORY)


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    answer: Mapping[str, Any] | None
    failure: TaskFailure | None
    is_spent: bool
    """Whether the worker must not run another task."""
    notes: tuple[str, ...] = ()
    is_doubtful: bool = False
    """Whether another task, or another process, may be to blame."""


class Attempt:
    """One task in one worker.

    Args:
        task: what is run.
        worker: it waits for a request.
        forker: the worker's own.
        bounds: of the worker.
        memory_bytes: its limit.
        is_cancelled: asked now and then.
    """

    def __init__(
        self,
        task: Task,
        worker: Worker,
        forker: Forker,
        bounds: Bounds,
        memory_bytes: int,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._task = task
        self._worker = worker
        self._forker = forker
        self._bounds = bounds
        self._memory_bytes = memory_bytes
        self._is_cancelled = is_cancelled
        self._token = secrets.token_hex(12)
        self._junk_bytes = 0
        self._is_running = False
        """Whether the time of the run counts, and no longer that of the compilation."""
        self._was_taken = False
        self._deadline = 0.0
        self._closed_at = 0.0

    def run(self, path: list[str]) -> Ending:
        """Ask for it and wait for its end.

        Args:
            path: where modules are found, beside where the worker finds them.
        """
        request = {
            "token": self._token,
            "function": self._task.function,
            "arguments": dict(self._task.arguments),
            "path": path,
        }
        kills = _kills_for_memory(self._forker)
        self._worker.output.restart()
        self._worker.requests.put(json.dumps(request, allow_nan=False).encode() + b"\n")
        self._deadline = time.monotonic() + self._task.compile_timeout_s
        watch = FamilyWatch(self._worker.pid, self._forker.family, self._bounds, self._memory_bytes)
        while True:
            message = self._step()
            if message is not None:
                return self._answered(message)
            code = self._forker.exit_code(self._worker)
            if code is not None:
                return self._died(code, kills)
            if self._forker.is_gone:
                failure = TaskFailure(Reason.CRASHED, "The process behind its worker was ended.")
                return Ending(None, failure, is_spent=True, is_doubtful=True)
            stopped = self._stopped() or watch.excess()
            if stopped is not None:
                failure = stopped
                doubtful = failure.reason in _DOUBTFUL and self._worker.tasks_done > 0
                return Ending(None, failure, is_spent=True, is_doubtful=doubtful)

    def _step(self) -> dict[str, Any] | None:
        """Wait a moment for anything; the task's last message, if it came."""
        worker = self._worker
        if not worker.answers.is_closed:
            self._closed_at = time.monotonic()
        reading = [r.number for r in (worker.answers, worker.output) if not r.is_closed]
        writing = [worker.requests.number] if worker.requests.has_more else []
        ready, room, _ = select.select([*reading, self._forker.fileno()], writing, [], TICK_S)
        if room:
            worker.requests.write()
        if worker.output.number in ready:
            worker.output.take()
        return self._heard() if worker.answers.number in ready else None

    def _heard(self) -> dict[str, Any] | None:
        for line in self._worker.answers.lines():
            message = message_of(line, self._token)
            if not message:
                self._junk_bytes += len(line)
            elif isinstance(message.get("progress"), dict):
                if message["progress"].get("phase") == "run" and not self._is_running:
                    self._is_running = True
                    self._deadline = time.monotonic() + self._task.run_timeout_s
            elif "taken" in message:
                self._was_taken = True
            else:
                return message
        return None

    def _stopped(self) -> TaskFailure | None:
        """Why it must not go on."""
        if self._is_cancelled():
            return TaskFailure(Reason.CANCELLED, "It was cancelled while it ran.")
        said = self._worker.output.bytes_read + self._junk_bytes
        if said > self._bounds.output_bytes:
            limit = f"{self._bounds.output_bytes / 2**20:,.3g} MiB"
            return TaskFailure(Reason.TOO_MUCH_OUTPUT, f"It printed more than {limit}.")
        if self._worker.answers.is_too_long:
            text = f"It answers with more than {LARGEST_LINE >> 20} MiB."
            return TaskFailure(Reason.TOO_MUCH_OUTPUT, text)
        if self._worker.answers.is_closed and time.monotonic() > self._closed_at + _NEWS_S:
            return TaskFailure(Reason.CRASHED, "It closed the pipe that its answer goes through.")
        if time.monotonic() > self._deadline:
            return self._too_late()
        return None

    def _too_late(self) -> TaskFailure:
        last = self._said(1)
        if self._is_running:
            text = f"It ran for more than {self._task.run_timeout_s:g} s and was killed{last}"
            return TaskFailure(Reason.RUN_TIMEOUT, text)
        text = f"It did not come to run within {self._task.compile_timeout_s:g} s and was killed"
        return TaskFailure(Reason.COMPILE_TIMEOUT, text + last)

    def _answered(self, message: Mapping[str, Any]) -> Ending:
        self._worker.tasks_done += 1
        try:
            answer, failure = _outcome(message)
        except (KeyError, TypeError, ValueError):  # who sent it may be at work still
            failure = TaskFailure(Reason.RAISED, _no_answer(message))
            return Ending(None, failure, is_spent=True)
        changed, threads = _words(message, "changed"), _words(message, "threads")
        processes, helpers = ([], []) if message.get("alone") is True else self._processes_left()
        kept = [*_words(message, "kept"), *(f"process {one.pid}" for one in helpers)]
        notes: tuple[str, ...] = ()
        if changed:
            notes += (f"It changed {', '.join(changed)}; its worker was renewed.",)
        if kept:
            what = ", ".join(kept[:8])
            notes += (f"Libraries it uses keep {what} waiting; its worker was renewed.",)
        if failure is not None:
            doubtful = failure.reason in _DOUBTFUL and self._worker.tasks_done > 1
            spent = is_fatal(failure) or bool(changed or threads or processes or kept)
            return Ending(None, failure, spent, notes, doubtful)
        if left := [*threads, *(f"process {one.pid}" for one in processes)]:
            text = f"It answered, and left running: {', '.join(left[:8])}."
            failure = TaskFailure(Reason.KEEPS_RUNNING, text)
            said = shortened(json.dumps(answer), 600)
            return Ending(None, failure, is_spent=True, notes=(*notes, f"It had answered {said}"))
        assert answer is not None
        if why := answer.get(SPENT):
            notes += (f"{why}; its worker was renewed.",)
        return Ending(answer, None, is_spent=bool(changed or kept or why), notes=notes)

    def _processes_left(self) -> tuple[list[Process], list[Process]]:
        """What the task started and did not end; and compile workers of a library's that wait.

        It gets a moment to.
        """
        deadline = time.monotonic() + self._bounds.leave_s
        took: dict[int, int] = {}
        while True:
            left = [one for one in self._forker.family() if one.pid != self._worker.pid]
            now = {one.pid: process_cpu_time_ns(one.pid) for one in left}
            if not left or time.monotonic() > deadline:
                waiting = [
                    one
                    for one in left
                    if is_compile_worker(one.pid, self._worker.pid)
                    and took.get(one.pid) == now[one.pid]
                ]
                return [one for one in left if one not in waiting], waiting
            took = now
            time.sleep(TICK_S / 2)

    def _died(self, code: int, kills: int) -> Ending:
        """The worker ended; an answer that it had given before counts."""
        while not self._worker.answers.is_closed:
            message = self._heard()
            if message is not None:
                ending = self._answered(message)
                return Ending(ending.answer, ending.failure, True, ending.notes)
            if not select.select([self._worker.answers.number], [], [], 0)[0]:
                break
        while select.select([self._worker.output.number], [], [], 0)[0]:
            self._worker.output.take()
            if self._worker.output.is_closed:
                break
            if self._worker.output.bytes_read > self._bounds.output_bytes:
                break
        failure = self._death(code, _kills_for_memory(self._forker) > kills)
        used = self._worker.tasks_done > 0
        outside = code < 0 and -code in _FROM_OUTSIDE
        return Ending(None, failure, True, (), used or outside or not self._was_taken)

    def _death(self, code: int, for_memory: bool) -> TaskFailure:
        if code == -signal.SIGKILL and for_memory:
            return memory_exceeded(None, self._memory_bytes)
        if code == LOST_PIPE:
            text = "It closed the pipe that its answer goes through"
            return TaskFailure(Reason.CRASHED, text + self._said())
        if code < 0:
            text = f"Its process was ended by {_name(-code)} before it had an answer"
            return TaskFailure(Reason.CRASHED, text + self._said())
        text = f"It ended its process with exit code {code} before it had an answer"
        return TaskFailure(Reason.EXITED, text + self._said())

    def _said(self, count: int = _LAST_LINES) -> str:
        """The last lines of its output, or where a fault was."""
        lines = self._worker.output.last_lines()
        starts = [i for i, line in enumerate(lines) if line.startswith("Current thread")]
        telling = lines[starts[-1] + 1 : starts[-1] + count] if starts else lines[-count:]
        return f": {' | '.join(line[:300] for line in telling)}" if telling else "."


def _outcome(message: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, TaskFailure | None]:
    """A last message as an answer or a failure.

    Raises:
        KeyError, TypeError, ValueError: it is neither.
    """
    if "failure" in message:
        said = message["failure"]
        return None, TaskFailure(Reason(said["reason"]), str(said["detail"]))
    if not isinstance(message["result"], dict):
        raise TypeError
    return message["result"], None


def _no_answer(message: Mapping[str, Any]) -> str:
    error = message.get("error")
    found = error.get("found") if isinstance(error, dict) else None
    return str(found or "It answered with what is neither an answer nor a failure.")


def _words(message: Mapping[str, Any], name: str) -> list[str]:
    found = message.get(name)
    return [str(one) for one in found] if isinstance(found, list) else []


def _kills_for_memory(forker: Forker) -> int:
    """Processes that the kernel has ended so far because memory ran out."""
    if forker.group is not None:
        return forker.group.out_of_memory_kills()
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
