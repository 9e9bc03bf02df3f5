"""Run a command in a session of its own: output passed through, stopped whole, none left behind.

ncu starts the target, which starts others: all of them end with it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from kernel_compass.process_family import (
    GRACE_S,
    end_family,
    has_ended,
    marked,
    new_mark,
    termination_raises,
)

TAIL_LINES = 40
"""Lines of output kept for messages."""

_TAIL_BYTES = 64 << 10
_TICK_S = 0.05
_JOIN_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    returncode: int
    """Its exit code; negative: the signal that ended it."""
    stopped: str | None
    """What `watch` answered to have it stopped; `None` where it ended by itself."""
    stdout_tail: tuple[str, ...]
    stderr_tail: tuple[str, ...]
    seconds: float
    """Until it ended or was told to."""


def run_watched(
    argv: Sequence[str],
    environment: Mapping[str, str],
    watch: Callable[[], str | None],
    stdout: int | None = None,
    grace_s: float = GRACE_S,
) -> Outcome:
    """Run a command to its end, with its output passed through unchanged as it comes.

    Args:
        argv: the command.
        environment: its environment.
        watch: called some twenty times a second; an answer other than `None` stops the command.
        stdout: file descriptor for its standard output, by default ours; its standard error
            goes to ours.
        grace_s: seconds between interrupting and killing.

    Raises:
        OSError: it cannot be started.
        KeyboardInterrupt: interrupted; the command and all it started have ended by then.
    """
    start, mark = time.monotonic(), new_mark()
    with termination_raises():
        process = subprocess.Popen(
            argv,
            env=marked(environment, mark),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        pumps = [_Pump(process.stdout, 1 if stdout is None else stdout), _Pump(process.stderr, 2)]
        stopped: str | None = None
        tails: list[tuple[str, ...]] = []
        try:
            while not has_ended(process.pid):
                stopped = watch()
                if stopped is not None:
                    tails = [pump.tail() for pump in pumps]  # not what the stop makes it say
                    break
                time.sleep(_TICK_S)
        finally:
            seconds = time.monotonic() - start
            end_family(process, grace_s, mark)
            for pump in pumps:
                pump.finish()
    out, err = tails or [pump.tail() for pump in pumps]
    return Outcome(process.returncode, stopped, out, err, seconds)


class _Pump:
    """Copies a pipe to a file descriptor in a thread and keeps the end of it."""

    def __init__(self, pipe: IO[bytes] | None, target: int) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._target: int | None = target
        self._kept = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed under us at the very end
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                self._kept = (self._kept + chunk)[-_TAIL_BYTES:]
                self._pass_on(chunk)

    def _pass_on(self, chunk: bytes) -> None:
        """Write all of it; a reader that went away does not stop the program."""
        rest = memoryview(chunk)
        while rest and self._target is not None:
            try:
                rest = rest[os.write(self._target, rest) :]
            except BlockingIOError:
                time.sleep(_TICK_S)
            except OSError:
                self._target = None

    def finish(self) -> None:
        """Wait for the end of the output, which a process out of reach may hold open."""
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._pipe.close()

    def tail(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._kept.decode("utf-8", "replace").splitlines()[-TAIL_LINES:])
