"""The process behind a worker: imports once, then forks workers, so that a new one costs little.

It never touches a GPU. What a worker left behind comes to it (it is their subreaper), so that they
are found as its descendants whatever they did to their session or environment. It ends with the
one who started it: its control socket closes then.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any

from kernel_compass.execution.process_table import (
    Process,
    Table,
    descendants,
    end_family,
)
from kernel_compass.execution.worker_loop import WorkerSettings, serve

LARGEST_MESSAGE = 1 << 16
_SET_CHILD_SUBREAPER = 36


def main(number: int) -> int:
    """Serve the control socket of this number until it closes."""
    control = socket.socket(fileno=number)
    first = json.loads(control.recv(LARGEST_MESSAGE))
    sys.path += [entry for entry in first["path"] if entry not in sys.path]
    missing = _import(first["preload"])
    adopts = ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    gc.collect()
    gc.freeze()  # so that collecting in a worker does not copy all of it
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _say(control, {"ready": os.getpid(), "missing": missing, "adopts": adopts})
    try:
        _serve(control, woken)
    finally:
        end_family(_family)
    return 0


def _serve(control: socket.socket, woken: int) -> None:
    worker: int | None = None
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1 << 12)
            for pid, status in _reaped():
                if pid == worker:
                    _say(control, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})
        if control.fileno() in ready:
            try:
                text, pipes, _, _ = socket.recv_fds(control, LARGEST_MESSAGE, 3)
            except ConnectionResetError:
                return
            if not text:
                return
            worker = _forked(pipes, WorkerSettings(**json.loads(text)["start"]))
            for pipe in pipes:
                os.close(pipe)
            _say(control, {"started": worker})


def _forked(pipes: Collection[int], settings: WorkerSettings) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        requests, answers, output = pipes
        serve(requests, answers, output, settings)
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)


def _reaped() -> Iterator[tuple[int, int]]:
    """All that have ended: the worker, and what it left behind."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _family(table: Table) -> Collection[Process]:
    list(_reaped())
    return descendants(table, os.getpid())


def _import(names: list[str]) -> dict[str, str]:
    """Import them; what cannot be is told, and is for the task that needs it."""
    missing = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"[:500]
    return missing


def _say(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.send(json.dumps(message).encode())


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler, so that the wakeup descriptor is written to."""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
