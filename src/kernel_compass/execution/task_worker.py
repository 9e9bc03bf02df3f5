"""The other side of `run_task`: a process that runs tasks and reports on a private pipe.

Standard output becomes standard error first, so that nothing the task prints can be taken for an
answer. When the parent goes away, this process and its group end with it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO

from kernel_compass.execution.task_channel import Channel, moved_away, task_named
from kernel_compass.execution.task_failures import error_document
from kernel_compass.execution.task_pipes import DEBUG_VARIABLE

INTERRUPTED = 130


def main() -> int:
    """Read requests from standard input, run each, write its result or error."""
    answers = _taken(1, 2)
    requests = os.fdopen(_taken(0, os.open(os.devnull, os.O_RDONLY)), "rb")
    given: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, given), daemon=True).start()
    tell: Channel | None = None
    try:
        while True:  # until the parent has read the answers and ends us and our children
            request = json.loads(given.get())
            tell = tell or Channel(answers, request["token"])
            sys.path += [entry for entry in request["path"] if entry not in sys.path]
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


def _read(requests: IO[bytes], given: queue.SimpleQueue[bytes]) -> None:
    """Take requests in until the parent's pipe ends; then nobody wants an answer any more."""
    while line := requests.readline():
        given.put(line)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
