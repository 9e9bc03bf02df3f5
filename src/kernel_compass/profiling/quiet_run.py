"""Short questions to other programs: nothing shown, nothing read from the user, never for ever."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from kernel_compass.process_family import (
    end_family,
    has_ended,
    marked,
    new_mark,
    termination_raises,
)

_LARGEST_ANSWER = 64 << 20
_TICKS_S = (0.002, 0.05)
_JOIN_S = 1.0


def run_quietly(
    argv: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    largest_bytes: int = _LARGEST_ANSWER,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it says; what it started ends with it.

    Args:
        argv: the command.
        timeout_s: seconds until it is killed.
        environment: its whole environment; default: ours.
        largest_bytes: of either stream; when it says more it is killed.

    Raises:
        OSError: it cannot be started, or says too much.
        subprocess.TimeoutExpired: it did not end in time.
    """
    mark = new_mark()
    with termination_raises():
        process = subprocess.Popen(
            argv,
            env=marked(os.environ if environment is None else environment, mark),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        streams = [_Stream(pipe, largest_bytes) for pipe in (process.stdout, process.stderr)]
        try:
            _await(process, streams, timeout_s)
        finally:
            end_family(process, 0.0, mark)
            out, err = [stream.finish() for stream in streams]
    if any(stream.is_too_long for stream in streams):
        raise OSError(errno.EFBIG, f"it said more than {largest_bytes >> 10} KiB", argv[0])
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _await(process: subprocess.Popen[bytes], streams: Sequence[_Stream], timeout_s: float) -> None:
    deadline, tick_s = time.monotonic() + timeout_s, _TICKS_S[0]
    while not has_ended(process.pid) and not any(s.is_too_long for s in streams):
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, timeout_s)
        time.sleep(tick_s)
        tick_s = min(2 * tick_s, _TICKS_S[1])


class _Stream:
    """What a pipe says, read in a thread up to a limit."""

    def __init__(self, pipe: IO[bytes] | None, largest_bytes: int) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._room = largest_bytes
        self._chunks: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_too_long(self) -> bool:
        return self._room < 0

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed under us at the very end
            while self._room >= 0 and (chunk := os.read(self._pipe.fileno(), 1 << 16)):
                self._chunks.append(chunk)
                self._room -= len(chunk)

    def finish(self) -> str:
        """All of it, with line ends as Python has them; a process out of reach may hold it open."""
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._pipe.close()
        text = b"".join(self._chunks).decode("utf-8", "replace")
        return text.replace("\r\n", "\n").replace("\r", "\n")
