"""A process and all it started: found, ended whole, none left behind.

Members are found by their session, by their parents and by a mark in their environment (Linux,
through /proc), so that a stop reaches those that changed their process group, left the session or
lost their parent as well. Out of reach is what did the latter two with an environment of its own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

GRACE_S = 5.0
"""Between the interrupt and the kill."""

MARK_VARIABLE = "KERNEL_COMPASS_JOB"
"""Holds the marks of the jobs that a process belongs to."""

_TICK_S = 0.05
_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)


def has_ended(pid: int) -> bool:
    """Whether the process has ended; it stays unreaped, so that its number stays taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # our parent had SIGCHLD ignored, so the kernel reaps for us
        return True


def new_mark() -> str:
    """What nobody else's environment holds."""
    return secrets.token_hex(12)


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """An environment that names a job beside those it is part of."""
    known = environment.get(MARK_VARIABLE)
    return {**environment, MARK_VARIABLE: f"{known}:{mark}" if known else mark}


def end_family(process: subprocess.Popen[bytes], grace_s: float, mark: str | None = None) -> None:
    """Interrupt what still runs, then kill it and everything it started.

    Args:
        process: leader of a session of its own.
        grace_s: seconds between interrupting and killing.
        mark: what its environment was marked with.
    """
    with _signals_hasten() as hurry:
        family = _family(process.pid)
        if not has_ended(process.pid):
            _signal_group(process.pid, signal.SIGINT)
            deadline = time.monotonic() + grace_s
            while not (has_ended(process.pid) or hurry or time.monotonic() > deadline):
                family |= _family(process.pid)
                time.sleep(_TICK_S)
        for _ in range(3):
            family |= _family(process.pid, mark)
            _signal_group(process.pid, signal.SIGKILL)
            for pid, started in family:
                if _start_time(pid) == started:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            if not _family(process.pid, mark):
                break
            time.sleep(_TICK_S)
        process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _family(root: int, mark: str | None = None) -> set[tuple[int, str]]:
    """Live processes of a session or with a mark, and their descendants, with their start times."""
    rows = {pid: row for pid, row in _processes() if row[0] != "Z"}
    members = {pid for pid, row in rows.items() if int(row[3]) == root}
    if mark is not None:
        since = int(_start_time(root) or 0)
        younger = {pid for pid, row in rows.items() if int(row[19]) >= since}
        members |= {pid for pid in younger - members if _has_mark(pid, mark)}
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


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


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
