"""A process and all it started: found, ended whole, none left behind.

Members are found by their session and by their parents (Linux, through /proc), so that a stop
reaches those that changed their process group as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

GRACE_S = 5.0
"""Between the interrupt and the kill."""

_TICK_S = 0.05
_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)


def has_ended(pid: int) -> bool:
    """Whether the process has ended; it stays unreaped, so that its number stays taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # our parent had SIGCHLD ignored, so the kernel reaps for us
        return True


def end_family(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Interrupt what still runs, then kill it and everything it started."""
    with _signals_hasten() as hurry:
        family = _family(process.pid)
        if not has_ended(process.pid):
            _signal_group(process.pid, signal.SIGINT)
            deadline = time.monotonic() + grace_s
            while not (has_ended(process.pid) or hurry or time.monotonic() > deadline):
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
def termination_raises() -> Iterator[None]:
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
