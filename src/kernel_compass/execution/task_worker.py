"""The other side of `run_task`: a process that runs one task and reports on a private pipe.

Standard output becomes standard error first, so that nothing the task prints can be taken for an
answer. When the parent goes away, this process and its group end with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback

from kernel_compass.execution.task_channel import Channel, moved_away, task_named
from kernel_compass.execution.task_failures import error_document
from kernel_compass.execution.task_pipes import DEBUG_VARIABLE

INTERRUPTED = 130
_LONG_S = 3600.0


def main() -> int:
    """Read one request from standard input, run it, write its result or error."""
    answers = _taken(1, 2)
    requests = os.fdopen(_taken(0, os.open(os.devnull, os.O_RDONLY)), "rb")
    request = json.loads(requests.readline())
    tell = Channel(answers, request["token"])
    threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    sys.path += [entry for entry in request["path"] if entry not in sys.path]
    try:
        try:
            result = dict(task_named(request["task"])(request["arguments"], tell.progress))
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


def _report(error: BaseException, tell: Channel) -> None:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    tell.send({"error": error_document(error)})


def _taken(number: int, replacement: int) -> int:
    """A private copy of a standard stream, which from now on is another one."""
    private = moved_away(number)
    os.dup2(replacement, number)
    return private


def _end_with_parent(requests: int) -> None:
    """Wait for the end of the parent's pipe; then nobody wants the answer any more."""
    while os.read(requests, 1 << 12):
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
