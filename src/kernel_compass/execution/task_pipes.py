"""The pipes of a task's process, read in threads so that nobody waits for a reader."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import IO

TAIL_LINES = 60
"""Lines of standard error kept for messages."""

DEBUG_VARIABLE = "KERNEL_COMPASS_DEBUG"
"""Set: what a task says on standard error is shown, and its failures with their traceback."""

LARGEST_LINE = 64 << 20
"""Bytes of an answer; a task that has more to say writes it to a file."""

_TAIL_BYTES = 64 << 10
_JOIN_S = 1.0


class Lines:
    """Complete lines of a pipe, in order.

    Args:
        pipe: what is read, to its end.
    """

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._lines: queue.Queue[bytes] = queue.Queue()
        self.timed_out = False
        """Whether the reader of the lines gave up waiting."""
        self.is_too_long = False
        """Whether a line was longer than `LARGEST_LINE`: nothing is read after it."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def get(self, timeout_s: float) -> bytes:
        """The next line.

        Raises:
            queue.Empty: none came in time.
        """
        return self._lines.get(timeout=timeout_s) if timeout_s > 0 else self._lines.get_nowait()

    def finish(self) -> None:
        """Read what is left; a process that was left behind may hold the pipe open."""
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        parts: list[bytes] = []  # of a line that has not ended
        size = 0
        with contextlib.suppress(OSError, ValueError):  # closed under us at the very end
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                first, *others = chunk.split(b"\n")
                parts.append(first)
                size += len(first)
                for other in others:
                    self._lines.put(b"".join(parts))
                    parts, size = [other], len(other)
                if size > LARGEST_LINE:
                    self.is_too_long = True
                    return


class Tail:
    """The end of what a pipe said.

    Args:
        pipe: what is read, to its end.
        echo: whether all of it goes to our standard error as well.
    """

    def __init__(self, pipe: IO[bytes] | None, echo: bool = False) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._echo = echo
        self._kept = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def lines(self) -> tuple[str, ...]:
        """The last lines that are not blank."""
        said = [line.strip() for line in self._kept.decode("utf-8", "replace").splitlines()]
        return tuple([line for line in said if line][-TAIL_LINES:])

    def finish(self) -> None:
        """Read what is left; a process that was left behind may hold the pipe open."""
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._kept = (self._kept + chunk)[-_TAIL_BYTES:]
                if self._echo:
                    os.write(2, chunk)


def send_in_background(pipe: IO[bytes] | None, data: bytes) -> None:
    """Write to a pipe, and leave it open, without waiting for its reader."""
    assert pipe is not None
    number = pipe.fileno()

    def write() -> None:
        rest = memoryview(data)
        with contextlib.suppress(OSError):  # the process ended before it read all
            while rest:
                rest = rest[os.write(number, rest) :]

    threading.Thread(target=write, daemon=True).start()
