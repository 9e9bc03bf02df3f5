"""A forker as its owner sees it: started once, asked for workers, ended with all of them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.execution.control_group import ControlGroup
from kernel_compass.execution.forker import LARGEST_MESSAGE
from kernel_compass.execution.pipe_ends import LineReader, OutputReader, Writer
from kernel_compass.execution.process_table import (
    Process,
    Table,
    descendants,
    end_family,
    process,
    processes,
)
from kernel_compass.execution.task_pipes import Tail
from kernel_compass.execution.worker_loop import WorkerSettings
from kernel_compass.execution.worker_mark import WorkerMark, mark_of

MODULE = "kernel_compass.execution.forker"
_END_S = 60.0
"""A driver may take its time to give a killed process back."""
_ANSWER_S = 10.0


class Worker:
    """A worker's number and our ends of its pipes."""

    def __init__(self, pid: int, requests: int, answers: int, output: int) -> None:
        self.pid = pid
        self.requests = Writer(requests)
        self.answers = LineReader(answers)
        self.output = OutputReader(output)
        self.tasks_done = 0

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self.requests, self.answers, self.output):
            pipe.close()


class Forker:
    """The process behind one slot's workers.

    Args:
        mark: what its family is known by.
        environment: all of it.
        preload: modules it imports before the first worker.
        start_timeout_s: seconds that this may take.
        group: where the kernel keeps the limits of its workers, if anywhere.

    Raises:
        MeasurementError: it does not start.
    """

    def __init__(
        self,
        mark: WorkerMark,
        environment: Mapping[str, str],
        preload: Sequence[str],
        start_timeout_s: float,
        group: ControlGroup | None = None,
    ) -> None:
        self.mark = mark
        self.group = group
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", MODULE, str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid
        me = process(self.pid)
        self._started = me.started if me else 0
        self._tail = Tail(self._process.stderr)
        self._messages: deque[dict[str, Any]] = deque()
        self.is_gone = False
        """Whether it has ended, or closed its socket."""
        self._adopts = False
        try:
            self._control.send(json.dumps({"path": sys.path, "preload": list(preload)}).encode())
            ready = self._await("ready", start_timeout_s)
        except BaseException:
            self.end()
            raise
        self.missing: dict[str, str] = ready["missing"]
        """Modules that could not be imported, and why."""
        self._adopts = ready["adopts"]

    def start_worker(self, settings: WorkerSettings) -> Worker:
        """Fork one; the last must have ended.

        Raises:
            MeasurementError: the forker is gone, or does not answer.
        """
        pipes = [os.pipe() for _ in range(3)]
        (their_requests, requests), (answers, their_answers), (output, their_output) = pipes
        try:
            text = json.dumps({"start": asdict(settings)}).encode()
            socket.send_fds(self._control, [text], [their_requests, their_answers, their_output])
            started = self._await("started", _ANSWER_S)
        except BaseException as error:
            for number in (requests, answers, output):
                os.close(number)
            if isinstance(error, OSError):
                raise self._failed("is gone") from error
            raise
        finally:
            for number in (their_requests, their_answers, their_output):
                os.close(number)
        return Worker(int(started["started"]), requests, answers, output)

    def fileno(self) -> int:
        """Of the control socket: readable when there may be a message."""
        return self._control.fileno()

    def exit_code(self, worker: Worker) -> int | None:
        """How a worker ended; `None` = it has not, as far as we were told. Never waits."""
        self._receive(0.0)
        for message in self._messages:
            if message.get("ended") == worker.pid:
                return int(message["code"])
        return None

    def family(self, table: Table | None = None) -> list[Process]:
        """All that its workers are and have started, without itself.

        Args:
            table: all processes, where they have been looked at already.
        """
        table = processes() if table is None else table
        found = {one.pid: one for one in descendants(table, self.pid)}
        if self.is_gone or not self._adopts:
            for one in table.values():
                if one.started >= self._started and one.pid not in found and self._marked(one):
                    found[one.pid] = one
            for one in list(found.values()):
                found |= {below.pid: below for below in descendants(table, one.pid)}
        found.pop(self.pid, None)
        return list(found.values())

    def end_workers(self) -> list[Process]:
        """Kill all that its workers are and have started; say what did not end."""
        if self.group is not None:
            self.group.kill()
        left = end_family(self.family, _END_S)
        self._receive(0.0)
        self._messages.clear()
        return left

    def end(self) -> None:
        """End it and all of its family. Twice is once."""
        self._control.close()
        self.is_gone = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # ours, and not reaped yet: the number is its own
        self._process.wait()
        if self.group is not None:
            self.group.kill()
        end_family(self.family, _END_S)
        self._tail.finish()
        if self._process.stderr is not None:
            self._process.stderr.close()
        if self.group is not None:
            self.group.remove()

    def _marked(self, one: Process) -> bool:
        return one.pid != os.getpid() and mark_of(one.pid) == self.mark

    def _await(self, name: str, within_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + within_s
        while True:
            for message in list(self._messages):
                if name in message:
                    self._messages.remove(message)
                    return message
            if self.is_gone:
                raise self._failed("ended")
            if time.monotonic() > deadline:
                raise self._failed(f"did not answer within {within_s:g} s")
            self._receive(min(max(deadline - time.monotonic(), 0.0), 1.0))

    def _receive(self, within_s: float) -> None:
        """Take the messages that there are; wait for a first one if there is none."""
        while not self.is_gone and select.select([self._control], [], [], within_s)[0]:
            try:
                text = self._control.recv(LARGEST_MESSAGE)
            except ConnectionResetError:
                text = b""
            if text:
                self._messages.append(json.loads(text))
            self.is_gone = not text
            within_s = 0.0

    def _failed(self, how: str) -> MeasurementError:
        self._tail.finish() if self._process.poll() is not None else None
        said = " | ".join(self._tail.lines()[-4:])
        return MeasurementError(
            MeasurementCause.WORKER_DIED,
            f"The process that workers are forked from {how}" + (f": {said}" if said else "."),
            "Look in `dmesg` whether memory ran out; run it again.",
        )
