"""The other side of `run_task`: a process that runs one task and reports on a private pipe.

Standard output becomes standard error first, so that nothing the task prints can be taken for an
answer. When the parent goes away, this process and its group end with it.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from kernel_compass.errors import UsageError, shortened
from kernel_compass.execution.task_failures import error_document
from kernel_compass.execution.task_pipes import DEBUG_VARIABLE, LARGEST_LINE

INTERRUPTED = 130
_LONG_S = 3600.0
_PRIVATE_FROM = 200
"""File descriptors from here on are out of the way of what a task opens, guesses or closes."""

Task = Callable[[dict[str, Any], Callable[[Mapping[str, Any]], None]], Mapping[str, Any]]


def main() -> int:
    """Read one request from standard input, run it, write its result or error."""
    answers = _taken(1, 2)
    requests = os.fdopen(_taken(0, os.open(os.devnull, os.O_RDONLY)), "rb")
    request = json.loads(requests.readline())
    tell = _Channel(answers, request["token"])
    threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    sys.path += [entry for entry in request["path"] if entry not in sys.path]
    try:
        try:
            result = dict(_task(request["task"])(request["arguments"], tell.progress))
            tell.leave_if_forked()
            tell.send({"result": result})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            tell.leave_if_forked()
            _report(error, tell)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        while True:  # until the parent has read the answer and ends us and our children
            time.sleep(_LONG_S)
    except KeyboardInterrupt:
        return INTERRUPTED


def _report(error: BaseException, tell: _Channel) -> None:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    tell.send({"error": error_document(error)})


class _Channel:
    """JSON lines to the parent, from this process alone.

    Args:
        number: the file descriptor.
        token: begins every line, so that nothing else in the pipe is taken for one.
    """

    def __init__(self, number: int, token: str) -> None:
        self._number = number
        self._token = token
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def progress(self, message: Mapping[str, Any]) -> None:
        """Tell how far the task is."""
        self.send({"progress": dict(message)})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message whole.

        Raises:
            ValueError, TypeError: it is not JSON, or too long; nothing is written.
            RuntimeError: a forked child speaks; nothing is written.
        """
        if os.getpid() != self._owner:
            raise RuntimeError("A forked child cannot speak for the task.")
        line = f"{self._token} {json.dumps(message, allow_nan=False)}\n".encode()
        if len(line) > LARGEST_LINE:
            raise ValueError(f"{len(line):,} bytes; an answer has at most {LARGEST_LINE:,}")
        rest = memoryview(line)
        with self._lock:
            while rest:
                rest = rest[os.write(self._number, rest) :]

    def leave_if_forked(self) -> None:
        """End a forked child of the task that went on to here: the answer is the task's own."""
        if os.getpid() != self._owner:
            os._exit(1)


def _taken(number: int, replacement: int) -> int:
    """A private copy of a standard stream, which from now on is another one."""
    try:
        private = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _PRIVATE_FROM)
    except OSError:  # this process may have fewer
        private = os.dup(number)
    os.dup2(replacement, number)
    return private


def _end_with_parent(requests: int) -> None:
    """Wait for the end of the parent's pipe; then nobody wants the answer any more."""
    while os.read(requests, 1 << 12):
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _task(name: str) -> Task:
    module, _, function = name.partition(":")
    found: Task | None = None
    if all(word.isidentifier() for word in (*module.split("."), function)):
        try:
            found = getattr(importlib.import_module(module), function, None)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
    if not callable(found):
        raise UsageError(
            f"There is no task {shortened(name)!r}.", "Name one as package.module:function."
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
