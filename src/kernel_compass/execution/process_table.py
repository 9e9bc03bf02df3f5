"""All processes at one moment (Linux, through /proc), and the end of a family of them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PAUSE_S = 0.005


@dataclass(frozen=True)
class Process:
    """One process; its number and its start together are unique."""

    pid: int
    started: int
    """Ticks since the machine started."""
    parent: int
    session: int
    threads: int
    resident_bytes: int
    """Pages shared with its parent count as its own."""


Table = Mapping[int, Process]


def processes() -> Table:
    """Those that have not ended."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {one.pid: one for one in found if one is not None}


def process(pid: int) -> Process | None:
    """One of them; `None` where it has ended, reaped or not."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    parent, session, threads, started = (int(fields[i]) for i in (1, 3, 17, 19))
    return Process(pid, started, parent, session, threads, int(fields[21]) * _PAGE_BYTES)


def descendants(table: Table, root: int) -> list[Process]:
    """What a process started, and what that started, without itself."""
    children: dict[int, list[Process]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += [one.pid for one in below]
    return found


def proportional_bytes(members: Collection[Process]) -> int:
    """Resident memory where a page of several processes counts once; slower to find."""
    total = 0
    for one in members:
        with contextlib.suppress(OSError):
            for line in _read(f"/proc/{one.pid}/smaps_rollup").splitlines():
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) << 10
    return total


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where we may not know."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def kill(one: Process) -> None:
    """Kill exactly this process, and not another that has its number by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(one.pid)
        try:
            now = process(one.pid)
            if now is not None and now.started == one.started:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def end_all(members: Iterator[Collection[Process]], within_s: float = 10.0) -> list[Process]:
    """Kill until nothing is found any more.

    Args:
        members: whom to end; asked again after each round, as they may start others meanwhile.
        within_s: seconds after which what is left is given up (a driver may hold a process).

    Returns:
        What did not end.
    """
    deadline = time.monotonic() + within_s
    pause_s = 0.0  # the first rounds follow at once: a bomb must not win time
    for found in members:
        if not found:
            return []
        for one in found:
            kill(one)
        if time.monotonic() > deadline:
            return list(found)
        time.sleep(pause_s)
        pause_s = _PAUSE_S
    return []


def _read(path: str) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, 1 << 14)
    finally:
        os.close(number)
