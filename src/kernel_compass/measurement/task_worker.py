"""The other side of `run_task`: a process that runs one task and reports on a private pipe.

Standard output becomes standard error first, so that nothing the task prints can be taken for an
answer. When the parent goes away, this process and its group end with it.
"""

from __future__ import annotations

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

from kernel_compass.errors import UsageError
from kernel_compass.measurement.task_failures import error_document
from kernel_compass.measurement.task_pipes import DEBUG_VARIABLE

INTERRUPTED = 130
_LONG_S = 3600.0

Task = Callable[[dict[str, Any], Callable[[Mapping[str, Any]], None]], Mapping[str, Any]]


def main() -> int:
    """Read one request from standard input, run it, write its result or error."""
    tell = _Channel(_taken(1, 2))
    requests = os.fdopen(_taken(0, os.open(os.devnull, os.O_RDONLY)), "rb")
    request = json.loads(requests.readline())
    threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    sys.path += [entry for entry in request["path"] if entry not in sys.path]
    try:
        try:
            result = dict(_task(request["task"])(request["arguments"], tell.progress))
            tell.send({"result": result})
        except (Exception, SystemExit) as error:
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
    """JSON lines to the parent.

    Args:
        number: the file descriptor.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def progress(self, message: Mapping[str, Any]) -> None:
        """Tell how far the task is."""
        self.send({"progress": dict(message)})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message whole.

        Raises:
            ValueError, TypeError: it is not JSON; nothing is written.
        """
        rest = memoryview(json.dumps(message, allow_nan=False).encode() + b"\n")
        with self._lock:
            while rest:
                rest = rest[os.write(self._number, rest) :]


def _taken(number: int, replacement: int) -> int:
    """A private copy of a standard stream, which from now on is another one."""
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
    try:
        found = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        found = None
    except AttributeError:
        found = None
    if not callable(found):
        raise UsageError(f"There is no task {name!r}.", "Name one as package.module:function.")
    task: Task = found
    return task


if __name__ == "__main__":
    sys.exit(main())
