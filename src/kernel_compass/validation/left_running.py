"""Threads and processes that a candidate left behind, or that work for it."""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kernel_compass import library_work
from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found

_NOT_STARTED_HERE = (threading._MainThread, threading._DummyThread)  # type: ignore[attr-defined]
_LOOKS = 3
"""Calls at each of which a library's thread has to wake until it is the candidate's: one that looks
now and then is not."""


class LeftRunning:
    """The threads and processes that there are, when this is made."""

    def __init__(self) -> None:
        self._threads = _threads()
        self._nameless = _nameless()
        self._children = _children()
        library_work.attend_starts()

    def running(self, patience_s: float = 1.0) -> Found | None:
        """Threads or processes that were not there before and do not end.

        Those that a library's compiler started, and that run its own code, are not the
        candidate's: see `helped`.
        """
        deadline = time.monotonic() + patience_s
        while True:
            threads = self._new_threads() - {t.native_id for t in self._librarys()}
            nameless = max(_nameless() - self._nameless, 0)
            children = {c for c in self._new_children() if not _is_compile_worker(c)}
            if not threads and not children and not nameless:
                return None
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if threads or nameless:
            what = ", ".join(_thread_names(threads)) or "threads that nobody knows"
        else:
            what = f"{len(children)} processes"
        return Found(Reason.KEEPS_RUNNING, f"It left running when it had returned: {what}.")

    def helped(self, call: Callable[[], object]) -> Found | None:
        """Threads and processes of a compiler's that work at every call, and not once: for it.

        Args:
            call: of the candidate; all it compiles is compiled.
        """
        always: set[str] | None = None
        for _ in range(_LOOKS):
            before = self._taken()
            if not before:
                return None
            call()
            now = self._taken()
            awake = {name for name, taken in now.items() if before.get(name, 0) != taken}
            always = awake if always is None else always & awake
            if not always:
                return None
        what = ", ".join(sorted(always or ())[:4])
        return Found(Reason.KEEPS_RUNNING, f"At every call others work for it: {what}.")

    def _taken(self) -> dict[str, int]:
        """What threads and processes of libraries have taken of processors."""
        found = {f"{t.name} ({t.native_id})": library_work.cpu_time_ns(t) for t in self._librarys()}
        for pid in self._new_children():
            for one in (pid, *_children(pid)):
                found[f"process {one}"] = library_work.process_cpu_time_ns(one)
        return found

    def _librarys(self) -> list[threading.Thread]:
        new = [t for t in threading.enumerate() if t.native_id not in self._threads]
        return [t for t in new if library_work.is_compilers(t)]

    def _new_threads(self) -> set[int]:
        return {t for t in _threads() - self._threads if t not in _known_threads()}

    def _new_children(self) -> set[int]:
        return _children() - self._children


def _threads() -> set[int]:
    try:
        return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}
    except OSError:
        return {t.native_id for t in threading.enumerate() if t.native_id is not None}


def _known_threads() -> set[int]:
    """Threads of libraries' pools: they are named by their makers and wait."""
    known = set()
    for thread in _threads():
        try:
            name = Path(f"/proc/self/task/{thread}/comm").read_text().strip()
            state = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            known.add(thread)  # it ended meanwhile
            continue
        if state in "S" and name.startswith(("pt_", "cuda", "nccl", "omp", "OMP", "jemalloc")):
            known.add(thread)
    python = {t.native_id for t in threading.enumerate() if t.native_id is not None}
    return known - python


def _nameless() -> int:
    """Threads that run Python without a `Thread`: a name of a library's hides none of them."""
    named = [t for t in threading.enumerate() if not isinstance(t, _NOT_STARTED_HERE)]
    return _thread._count() - len(named)


def _thread_names(numbers: set[int]) -> list[str]:
    known = {t.native_id: t.name for t in threading.enumerate()}
    return [known.get(number, f"thread {number}") for number in sorted(numbers)[:4]]


def _is_compile_worker(pid: int) -> bool:
    return library_work.is_compile_worker(pid, os.getpid())


def _children(of: int | str = "self") -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{of}/task").glob("*/children"):
        try:
            found.update(map(int, task.read_text().split()))
        except OSError:
            continue
    return found
