"""The other side of a slot: a process that runs one task after the other."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import random
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_compass.execution import worker_state
from kernel_compass.execution.candidate_failures import failure_of
from kernel_compass.execution.task_channel import Channel, moved_away, task_named
from kernel_compass.execution.worker_environment import WorkerFolders
from kernel_compass.records.execution import TaskFailure
from kernel_compass.records.trial import Reason

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
LOST_PIPE = 71
"""Exit code of a worker that cannot answer any more."""

_ROOM_FOR_OTHERS = 4096
"""Processes and threads that a user's limit allows beside those there are: a backstop only."""


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker is told at its start."""

    folder: str
    leave_s: float
    control_group: str | None = None
    """Where its limits are kept, if anywhere."""


def serve(requests: int, answers: int, output: int, settings: WorkerSettings) -> None:
    """Run what is asked for until nobody asks any more. The process is a fresh fork.

    Args:
        requests: file descriptor of a pipe that is read, a JSON object a line.
        answers: of the pipe that is written.
        output: what becomes standard output and standard error.
        settings: of this worker.
    """
    os.setsid()
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that it knows whether a task left any
    if settings.control_group is not None:
        (Path(settings.control_group) / "cgroup.procs").write_text("0")
    _limit()
    random.seed()
    pipes = _own_pipes(requests, answers, output)
    worker = _Worker(Channel(pipes[1], ""), WorkerFolders(Path(settings.folder)), settings.leave_s)
    for line in _lines(pipes[0]):
        try:
            worker.run(json.loads(line))
        except OSError as error:
            if error.errno in (errno.EBADF, errno.EPIPE, errno.EINVAL):
                os._exit(LOST_PIPE)
            raise


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    room = used + _ROOM_FOR_OTHERS
    if soft == resource.RLIM_INFINITY or soft > room:
        resource.setrlimit(resource.RLIMIT_NPROC, (room, hard))


def _own_pipes(requests: int, answers: int, output: int) -> tuple[int, int]:
    """Move them out of the way, and close all else."""
    moved = moved_away(requests), moved_away(answers)
    empty = os.open(os.devnull, os.O_RDONLY)
    for number, source in ((0, empty), (1, output), (2, output)):
        os.dup2(source, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        number = int(name)
        if number > 2 and number not in moved and _is_pipe_or_socket(number):
            os.close(number)
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
    return moved


def _is_pipe_or_socket(number: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith(("pipe:", "socket:"))  # noqa: PTH115
    except OSError:  # the listing's own
        return False


def _lines(number: int) -> Any:
    """Lines of a pipe, to its end; one that a task closed has ended as well."""
    kept = b""
    while True:
        try:
            chunk = os.read(number, 1 << 16)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            return
        if not chunk:
            return
        *lines, kept = (kept + chunk).split(b"\n") if b"\n" in chunk else (kept + chunk,)
        yield from lines


class _Worker:
    def __init__(self, tell: Channel, folders: WorkerFolders, leave_s: float) -> None:
        self._tell = tell
        self._folders = folders
        self._leave_s = leave_s

    def run(self, request: Mapping[str, Any]) -> None:
        """Run one task and say how it ended."""
        self._folders.make()
        os.chdir(self._folders.work)
        path = list(sys.path)
        sys.path += [entry for entry in request["path"] if entry not in path]
        self._tell.token = request["token"]
        self._tell.send({"taken": True})
        before, threads = worker_state.state(), worker_state.threads_known()
        message = self._outcome(request)
        self._tell.leave_if_forked()
        left, kept = worker_state.threads_left(threads, self._leave_s)
        sys.path[:] = path
        changed = worker_state.changes(before, worker_state.state())
        beside = {"changed": changed[:20], "threads": left[:20], "kept": kept[:20]}
        self._say({**message, **beside, "alone": _is_childless()})

    def _outcome(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Its result or why there is none, once the GPU has done all it was asked to."""
        try:
            result = dict(task_named(request["function"])(request["arguments"], self._progress))
            self._tell.leave_if_forked()
            worker_state.wait_for_gpu()
            return {"result": result}
        except BaseException as error:
            self._tell.leave_if_forked()
            failure = self._worse(failure_of(error))
            return _failed(failure)
        finally:
            worker_state.disarm()
            worker_state.free_memory()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # whatever a task put there
                    stream.flush()

    def _worse(self, failure: TaskFailure) -> TaskFailure:
        """A GPU that faulted outweighs what the task made of it."""
        try:
            worker_state.wait_for_gpu()
        except Exception as error:
            found = failure_of(error)
            return found if found.reason is not Reason.RAISED else failure
        return failure

    def _progress(self, message: Mapping[str, Any]) -> None:
        self._tell.progress(message)

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._tell.send(message)
        except (TypeError, ValueError, RecursionError) as error:  # no JSON
            beside = {name: message[name] for name in ("changed", "threads", "kept", "alone")}
            self._tell.send({**_failed(failure_of(error)), **beside})


def _is_childless() -> bool:
    """Whether nothing that was started here is there any more, not even what lost its parent."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _failed(failure: TaskFailure) -> dict[str, Any]:
    return {"failure": {"reason": failure.reason.value, "detail": failure.detail}}
