"""Keeps a worker's family within its bounds, where the kernel does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection

from kernel_compass.execution.bounds import Bounds
from kernel_compass.execution.process_table import Process, process, proportional_bytes, urgent
from kernel_compass.records.execution import TaskFailure
from kernel_compass.records.trial import Reason

_EVERY_S = 0.25
_SHARE = 10
"""A look at all processes is at most a tenth of the time."""


class FamilyWatch:
    """Looks, as often as it is asked to, at little; at all processes now and then.

    Args:
        worker: its process id.
        family: the worker and what it started.
        bounds: how many processes and threads.
        memory_bytes: resident, all of them together.
    """

    def __init__(
        self,
        worker: int,
        family: Callable[[], Collection[Process]],
        bounds: Bounds,
        memory_bytes: int,
    ) -> None:
        self._worker = worker
        self._family = family
        self._bounds = bounds
        self._memory_bytes = memory_bytes
        self._next = time.monotonic() + _EVERY_S
        self._started_with = _threads_of_machine()

    def excess(self) -> TaskFailure | None:
        """What is beyond its bound; `None` = nothing, as far as was looked."""
        start = time.monotonic()
        if self._is_suspicious():
            with urgent():
                family = self._family()
        elif start >= self._next:
            family = self._family()
        else:
            return None
        found = self._of(family)
        now = time.monotonic()
        self._next = now + max(_EVERY_S, _SHARE * (now - start))
        self._started_with = max(_threads_of_machine(), self._started_with)
        return found

    def _is_suspicious(self) -> bool:
        more = _threads_of_machine() - self._started_with
        one = process(self._worker)
        return more > self._bounds.processes or (
            one is not None and one.resident_bytes > self._memory_bytes
        )

    def _of(self, family: Collection[Process]) -> TaskFailure | None:
        threads = sum(one.threads for one in family)
        for count, limit, what in (
            (len(family), self._bounds.processes, "processes"),
            (threads, self._bounds.threads, "threads"),
        ):
            if count > limit:
                text = f"It has {count:,} {what} running; {limit:,} are allowed."
                return TaskFailure(Reason.KEEPS_RUNNING, text)
        resident = sum(one.resident_bytes for one in family)
        if resident > self._memory_bytes:  # pages of several processes are in it several times
            resident = proportional_bytes(family) or resident
        if resident > self._memory_bytes:
            return memory_exceeded(resident, self._memory_bytes)
        return None


def memory_exceeded(resident: int | None, limit: int) -> TaskFailure:
    """The failure of a family that took too much memory."""
    took = "more" if resident is None else f"{resident / 2**20:,.0f} MiB"
    return TaskFailure(
        Reason.OUT_OF_MEMORY,
        f"It took {took} of host memory; its worker has {limit / 2**20:,.0f} MiB.",
    )


def _threads_of_machine() -> int:
    """How many threads there are, of all processes; cheap to know."""
    number = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(number, 256).split()[3].partition(b"/")[2])
    finally:
        os.close(number)
