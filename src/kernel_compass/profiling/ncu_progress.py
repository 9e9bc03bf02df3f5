"""What ncu is at, read from its growing log file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_S = 1.0
"""Progress is told at least this often, so that a slow kernel does not look like a stop."""

COMMUNICATION = re.compile(
    r"nccl|nvshmem|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|symm_?mem",
    re.IGNORECASE,
)
"""Names of kernels that wait for kernels of other processes or GPUs."""

_PROFILING = re.compile(r'==PROF== Profiling "(?P<name>.*?)"(?: - (?P<id>\d+))?')
_DONE = re.compile(r"- \d+ pass(?:es)?\b|100%")
_SLOW = "taking more time than expected"


@dataclass(frozen=True)
class Progress:
    """How far a profiling job is."""

    regime: str
    kernels_done: int
    """Launches profiled in this run; the program's own number is not known."""
    kernel_name: str | None
    """The kernel being profiled or profiled last, as ncu shortens it."""
    seconds: float
    """Since this run started."""


class LogFollower:
    """Reads ncu's log as it grows.

    Args:
        log: the log file; it need not exist yet.
        regime: what to call the run.
        on_progress: told whenever a kernel begins or ends, and every second.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        log: Path,
        regime: str,
        on_progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._regime = regime
        self._tell = on_progress
        self._clock = clock
        self._start = self._told = self._grew = clock()
        self._position = 0
        self._rest = ""
        self._ids: set[str] = set()
        self._without_id = 0
        self._last: tuple[int, str | None] | None = None
        self.kernel_name: str | None = None
        self.warned_slow = False
        """Whether ncu said that a launch takes more time than expected."""
        self._unfinished = False

    @property
    def kernels_done(self) -> int:
        """Launches profiled so far."""
        return len(self._ids) + self._without_id

    @property
    def idle_s(self) -> float:
        """Seconds since the log last grew."""
        return self._clock() - self._grew

    @property
    def waits_in_communication(self) -> bool:
        """Whether the kernel under way is one that waits for others."""
        return bool(self._unfinished and COMMUNICATION.search(self.kernel_name or ""))

    def poll(self) -> None:
        """Read what is new and tell about it."""
        text = self._new_text()
        if text:
            self._grew = self._clock()
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._note(line, complete=True)
            self._note(self._rest, complete=False)
        state = (self.kernels_done, self.kernel_name)
        now = self._clock()
        if self._tell and (state != self._last or now - self._told >= HEARTBEAT_S):
            self._last, self._told = state, now
            self._tell(Progress(self._regime, *state, now - self._start))

    def _new_text(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(self._position)
                new = file.read()
        except OSError:
            return ""
        self._position += len(new)
        return new.decode("utf-8", "replace")

    def _note(self, line: str, complete: bool) -> None:
        if _SLOW in line:
            self.warned_slow = True
        found = _PROFILING.search(line)
        if not found:
            if complete and _DONE.search(line):  # ncu broke the line with another message
                self._unfinished = False
            return
        self.kernel_name = found["name"]
        self._unfinished = not _DONE.search(line)
        if complete and not self._unfinished:
            if found["id"] is None:
                self._without_id += 1
            else:
                self._ids.add(found["id"])
