"""All processes at one moment (Linux, through /proc), and the end of a family of them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
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
    group: int
    threads: int
    resident_bytes: int
    """Pages shared with its parent count as its own."""


Table = Mapping[int, Process]


def processes(known: Table | None = None) -> Table:
    """Those that have not ended.

    Args:
        known: processes that are taken as they were, if there is one of their number at all: a
            look at the others alone is quick.
    """
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    found = ((known or {}).get(number) or process(number) for number in numbers)
    return {one.pid: one for one in found if one is not None}


def process(pid: int) -> Process | None:
    """One of them; `None` where it has ended, reaped or not."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 22 or fields[0] in (b"Z", b"X"):
        return None
    parent, group, threads, started = (int(fields[i]) for i in (1, 2, 17, 19))
    return Process(pid, started, parent, group, threads, int(fields[21]) * _PAGE_BYTES)


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


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """Run this thread before all others, where we may: a fork bomb leaves it no time otherwise."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def end_family(
    members: Callable[[Table], Collection[Process]], within_s: float = 10.0
) -> list[Process]:
    """Stop, then kill, until nothing is found any more.

    What is stopped starts no others and takes no time from us; killing takes longer.

    Args:
        members: whom to end, of all processes; asked in each round anew.
        within_s: seconds after which what is left is given up (a driver may hold a process).

    Returns:
        What did not end.
    """
    deadline = time.monotonic() + within_s
    with urgent():
        _stop_all(members, deadline)
    while found := members(processes()):
        for one in found:
            kill(one)
        if time.monotonic() > deadline:
            return list(found)
        time.sleep(_PAUSE_S)
    return []


def _stop_all(members: Callable[[Table], Collection[Process]], deadline: float) -> None:
    """Round after round, each with a look at the new ones alone, until there are none."""
    stopped: dict[int, Process] = {}
    others: Table = {}
    while time.monotonic() < deadline:
        table = processes({**others, **stopped})
        found = {one.pid: one for one in members(table)}
        new = [one for one in found.values() if one.pid not in stopped]
        if not new:
            return
        for group in {one.group for one in new} - {os.getpgrp()}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGSTOP)  # at one instant
        for one in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGSTOP)
        stopped |= found
        others = {pid: one for pid, one in table.items() if pid not in found}


def _read(path: str) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(number, 1 << 14)
    finally:
        os.close(number)
