"""Run measuring tasks in a process of their own: CUDA is never initialised in the caller's own.

A task is a function named `package.module:function` that takes its arguments as a dictionary and
a function to tell progress with, and returns a dictionary; both must be JSON. Whatever it does
(crash, hang, `os._exit`, leave processes behind, write to standard output) costs this task alone.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernel_compass
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.execution.task_channel import message_of
from kernel_compass.execution.task_failures import (
    ended_without_answer,
    error_of,
    said_too_much,
)
from kernel_compass.execution.task_pipes import (
    DEBUG_VARIABLE,
    Lines,
    Tail,
    send_in_background,
)
from kernel_compass.process_family import (
    GRACE_S,
    end_family,
    has_ended,
    marked,
    new_mark,
    termination_raises,
)

Arguments = Mapping[str, Any]
OnProgress = Callable[[dict[str, Any]], None]

WORKER = "kernel_compass.execution.task_worker"
_TICK_S = 0.05


def run_task(
    dotted_name: str,
    arguments: Arguments,
    on_progress: OnProgress | None = None,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    grace_s: float = GRACE_S,
) -> dict[str, Any]:
    """Run a task in a process of its own and return what it returned.

    Args:
        dotted_name: `package.module:function`.
        arguments: what the function gets; JSON.
        on_progress: called, in this thread, with each dictionary the task tells.
        timeout_s: seconds until the process and all it started are killed; `None` = never.
        environment: variables set for it beside those of this process.
        grace_s: seconds between interrupting and killing, for Ctrl-C and time-outs.

    Raises:
        KernelCompassError: the task raised it there; it is raised here alike.
        MeasurementError: it failed in another way (`callable_failed`, `out_of_memory`), ended
            without an answer (`worker_died`) or not at all (`timeout`).
        ValueError: the arguments are not JSON.
        KeyboardInterrupt: interrupted; the process and all it started have ended by then.
    """
    with TaskSession(environment, grace_s) as session:
        return session.run(dotted_name, arguments, on_progress, timeout_s)


class TaskSession(AbstractContextManager["TaskSession"]):
    """A process for one task after another: what they leave in it, the next one finds.

    It is started when it is needed, and started anew after one that ended without an answer.

    Args:
        environment: variables set for it beside those of this process.
        grace_s: seconds between interrupting and killing.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, grace_s: float = GRACE_S
    ) -> None:
        self._variables, self._grace_s = dict(environment or {}), grace_s
        self._live: _Live | None = None
        self.answered = 0
        """Tasks that the process which is there now has answered."""

    def run(
        self,
        dotted_name: str,
        arguments: Arguments,
        on_progress: OnProgress | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Run a task there; arguments and failures are those of `run_task`.

        After an exception that the task raised the process is still there.
        """
        request = {"task": dotted_name, "arguments": dict(arguments), "path": sys.path}
        json.dumps(request, allow_nan=False)
        with termination_raises():
            try:
                live = self._live = self._live or _Live.started(self._variables)
                # The pipe stays open: its end tells the worker that we are gone. The worker waits
                # for the interrupt after its answer: its children can be found as long as it lives.
                line = json.dumps({**request, "token": live.token}).encode() + b"\n"
                send_in_background(live.process.stdin, line)
                answer = _answer(live, on_progress, _deadline(timeout_s))
            except BaseException:
                self.close()
                raise
            if answer is None:
                self.close()
        if answer is None and live.lines.is_too_long:
            raise said_too_much(dotted_name)
        if answer is None and timeout_s is not None and live.lines.timed_out:
            raise _timeout(dotted_name, timeout_s, live.tail)
        if answer is None:
            raise ended_without_answer(dotted_name, live.process.returncode, live.tail.lines())
        self.answered += 1
        if "error" in answer:
            raise error_of(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """End the process and all it started."""
        live, self._live, self.answered = self._live, None, 0
        if live is not None:
            live.end(self._grace_s)

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Live:
    """A worker that runs."""

    process: subprocess.Popen[bytes]
    lines: Lines
    tail: Tail
    token: str
    mark: str

    @classmethod
    def started(cls, variables: Mapping[str, str]) -> _Live:
        mark = new_mark()
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", WORKER],
            env=marked(_environment(variables), mark),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        tail = Tail(process.stderr, echo=bool(os.environ.get(DEBUG_VARIABLE)))
        return cls(process, Lines(process.stdout), tail, secrets.token_hex(12), mark)

    def end(self, grace_s: float) -> None:
        with termination_raises():
            end_family(self.process, grace_s, self.mark)
            for end in (self.lines, self.tail):
                end.finish()
            _close(self.process)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Ours, and this very package first, installed or not."""
    here = str(Path(kernel_compass.__file__).parents[1])
    known = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([here, known]) if known else here
    return {**os.environ, "PYTHONPATH": path, **extra}


def _deadline(timeout_s: float | None) -> float:
    return float("inf") if timeout_s is None else time.monotonic() + timeout_s


def _answer(live: _Live, on_progress: OnProgress | None, deadline: float) -> dict[str, Any] | None:
    """The task's result or error; `None` where the process or the time ended without one."""
    drained, lines = False, live.lines
    while True:
        ended = has_ended(live.process.pid)
        if ended and not drained:
            lines.finish()  # what is still in the pipe was written before the end
            drained = True
        try:
            message = _message(lines.get(_TICK_S if not ended else 0.0), live.token)
        except queue.Empty:
            if ended or lines.is_too_long:
                return None
            message = {}
        if "progress" in message and on_progress is not None:
            on_progress(message["progress"])
        if "result" in message or "error" in message:
            return message
        if time.monotonic() > deadline:
            lines.timed_out = True
            return None


def _message(line: bytes, token: str) -> dict[str, Any]:
    message = message_of(line, token)
    known = len(message) == 1 and isinstance(next(iter(message.values())), dict)
    return message if known else {}


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was never read there is of no use now
                continue


def _timeout(name: str, timeout_s: float, tail: Tail) -> MeasurementError:
    said = tail.lines()
    last = f" Its last line: {said[-1]}" if said else ""
    return MeasurementError(
        MeasurementCause.TIMEOUT,
        f"{name} did not end within {timeout_s:g} s and was killed.{last}",
        "Allow more time, or look with `nvidia-smi` at what else uses the GPU.",
    )
