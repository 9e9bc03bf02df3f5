"""What a process says of its tasks: JSON lines on a private pipe, from this process alone."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kernel_compass.errors import UsageError, shortened
from kernel_compass.execution.task_pipes import LARGEST_LINE

PRIVATE_FROM = 200
"""File descriptors from here on are out of the way of what a task opens, guesses or closes."""

TaskFunction = Callable[[dict[str, Any], Callable[[Mapping[str, Any]], None]], Mapping[str, Any]]


class AnswerTooLong(ValueError):
    """An answer of more than `LARGEST_LINE` bytes."""


class Channel:
    """JSON lines to the parent.

    Args:
        number: the file descriptor.
        token: begins every line, so that nothing else in the pipe is taken for one.
    """

    def __init__(self, number: int, token: str) -> None:
        self._number = number
        self.token = token
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def progress(self, message: Mapping[str, Any]) -> None:
        """Tell how far the task is."""
        self.send({"progress": dict(message)})

    def send(self, message: dict[str, Any]) -> None:
        """Write one message whole, on a line of its own whatever else got into the pipe.

        Raises:
            ValueError, TypeError: it is not JSON, or too long; nothing is written.
            RuntimeError: a forked child speaks; nothing is written.
        """
        if os.getpid() != self._owner:
            raise RuntimeError("A forked child cannot speak for the task.")
        line = f"\n{self.token} {json.dumps(message, allow_nan=False)}\n".encode()
        if len(line) > LARGEST_LINE:
            raise AnswerTooLong(f"{len(line):,} bytes; an answer has at most {LARGEST_LINE:,}")
        rest = memoryview(line)
        with self._lock:
            while rest:
                rest = rest[os.write(self._number, rest) :]

    def leave_if_forked(self) -> None:
        """End a forked child of the task that went on to here: the answer is the task's own."""
        if os.getpid() != self._owner:
            os._exit(1)


def message_of(line: bytes, token: str) -> dict[str, Any]:
    """A line as the message it is; anything else that got into the pipe is an empty one."""
    begin, _, text = line.partition(b" ")
    if begin != token.encode():
        return {}
    try:
        message = json.loads(text)
    except ValueError:  # what else was written there ran into it
        return {}
    except RecursionError:
        return {"error": {"found": "The answer is nested too deeply.", "remedy": "Flatten it."}}
    return dict(message) if isinstance(message, dict) else {}


def moved_away(number: int) -> int:
    """A private copy of a file descriptor, out of the way of a task, not inherited by programs."""
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FROM)
    except OSError:  # this process may have fewer
        return os.dup(number)


def task_named(name: str) -> TaskFunction:
    """The function of a task.

    Raises:
        UsageError: there is none of this name.
    """
    module, _, function = name.partition(":")
    found: TaskFunction | None = None
    if all(word.isidentifier() for word in (*module.split("."), function)):
        try:
            found = getattr(importlib.import_module(module), function, None)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
    if not callable(found):
        raise UsageError(
            f"There is no task {shortened(name)!r}.", "Name one as package.module:function."
        )
    return found
