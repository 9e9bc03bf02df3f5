"""Run a command in a session of its own: output passed through, stopped whole, none left behind.

ncu starts the target, which starts others: they are found by their session and by their parents
(Linux, through /proc), so that a stop reaches those that changed their process group as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

TAIL_LINES = 40
"""Lines of output kept for messages."""

GRACE_S = 5.0
"""Between the interrupt and the kill."""

_TAIL_BYTES = 64 << 10
_TICK_S = 0.05
_JOIN_S = 2.0
_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)


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
    start = time.monotonic()
    with _termination_raises():
        process = subprocess.Popen(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        pumps = [_Pump(process.stdout, 1 if stdout is None else stdout), _Pump(process.stderr, 2)]
        stopped: str | None = None
        tails: list[tuple[str, ...]] = []
        try:
            while not _has_ended(process.pid):
                stopped = watch()
                if stopped is not None:
                    tails = [pump.tail() for pump in pumps]  # not what the stop makes it say
                    break
                time.sleep(_TICK_S)
        finally:
            _end(process, grace_s)
            for pump in pumps:
                pump.finish()
    out, err = tails or [pump.tail() for pump in pumps]
    return Outcome(process.returncode, stopped, out, err, time.monotonic() - start)


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


def _has_ended(pid: int) -> bool:
    """Whether the process has ended; it stays unreaped, so that its number stays taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # our parent had SIGCHLD ignored, so the kernel reaps for us
        return True


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Interrupt what still runs, then kill it and everything it started."""
    with _signals_hasten() as hurry:
        family = _family(process.pid)
        if not _has_ended(process.pid):
            _signal_group(process.pid, signal.SIGINT)
            deadline = time.monotonic() + grace_s
            while not (_has_ended(process.pid) or hurry or time.monotonic() > deadline):
                family |= _family(process.pid)
                time.sleep(_TICK_S)
        for _ in range(3):
            family |= _family(process.pid)
            _signal_group(process.pid, signal.SIGKILL)
            for pid, started in family:
                if _start_time(pid) == started:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            if not _family(process.pid):
                break
            time.sleep(_TICK_S)
        process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _family(root: int) -> set[tuple[int, str]]:
    """Live processes of a session and the descendants of its leader, with their start times."""
    rows = {pid: row for pid, row in _processes() if row[0] != "Z"}
    members = {pid for pid, row in rows.items() if int(row[3]) == root}
    parents = {root, *members}
    while parents:
        parents = {p for p, row in rows.items() if int(row[1]) in parents} - members - {root}
        members |= parents
    return {(pid, rows[pid][19]) for pid in members if pid in rows}


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Process id, then the fields of its stat line from the state on."""
    if not Path("/proc/self/stat").exists():
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (row := _stat(int(entry.name))):
            yield int(entry.name), row


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _start_time(pid: int) -> str | None:
    row = _stat(pid)
    return row[19] if row else None


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """While a command runs, SIGTERM and SIGHUP unwind the stack, so that nothing outlives us."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    unhandled = [n for n in _TERMINATIONS if signal.getsignal(n) is signal.SIG_DFL]
    with _handled(unhandled, leave):
        yield


@contextlib.contextmanager
def _signals_hasten() -> Iterator[list[int]]:
    """Collect signals instead of raising: the end of a command must not be cut short."""
    seen: list[int] = []
    with _handled((signal.SIGINT, *_TERMINATIONS), lambda number, _: seen.append(number)):
        yield seen


@contextlib.contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Install a handler, in the main thread alone, where Python allows it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
