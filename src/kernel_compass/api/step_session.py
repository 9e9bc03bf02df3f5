"""One process of a program for several trials, as long as none of them leaves anything behind.

Opening a program may take minutes. A process is used again where the trial before was taken off to
the bit; it is given up after any failure, after a trial that left memory or other results, and
after some trials in any case. What a used process says against a change is not believed: after a
crash or wrong results, the same is asked of a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from kernel_compass.errors import KernelCompassError
from kernel_compass.execution.tasks import OnProgress, TaskSession

MOST_TASKS = 16
"""In one process."""
ROOMY = 0.5
"""Up to this part of the GPU's memory taken, a waiting process is in nobody's way."""

Doubt = Callable[[Mapping[str, Any]], bool]
"""Whether an answer speaks against a change, so that a used process may be to blame."""


class StepSession(AbstractContextManager["StepSession"]):
    """Asks tasks of a program's process.

    Args:
        environment: variables set for the process.
        timeout_s: of one task, opening the program included.
        most: tasks of one process; of one, none is left waiting.
    """

    def __init__(self, environment: Mapping[str, str], timeout_s: float, most: int = 1) -> None:
        self._session, self._timeout_s, self.most = TaskSession(environment), timeout_s, most
        self._gpu_used: float | None = None

    def ask(
        self, task: str, arguments: Mapping[str, Any], told: OnProgress, doubt: Doubt
    ) -> dict[str, Any]:
        """A task's answer; where a used process may be to blame for it, that of a fresh one.

        Raises:
            KernelCompassError: the task failed in a fresh process.
        """
        used = self._session.answered > 0
        try:
            answer = self._session.run(task, arguments, told, self._timeout_s)
        except KernelCompassError:
            self.close()
            if not used:
                raise
            return self.ask(task, arguments, told, doubt)
        self._gpu_used = answer.pop("gpu_used", None)
        doubtful = used and doubt(answer)
        if not answer.pop("clean", False) or doubtful or self._session.answered >= self.most:
            self.close()
        return self.ask(task, arguments, told, doubt) if doubtful else answer

    def make_room(self) -> None:
        """Something else is about to use the GPU: a large program does not wait there."""
        if self._gpu_used is None or self._gpu_used > ROOMY:
            self.close()

    def close(self) -> None:
        """End the process."""
        self._session.close()

    def __exit__(self, *_: object) -> None:
        self.close()
