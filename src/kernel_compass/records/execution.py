"""What an executor is asked and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_compass.records.trial import Reason

SPENT = "spent"
"""In an answer: why the process that gave it is of no further use. What a task did there may decide
what the next one finds."""


@dataclass(frozen=True)
class Task:
    """One call in a worker."""

    identifier: str
    """Unique among those that have not ended."""
    function: str
    """`package.module:function`; gets the arguments and a function to tell progress with."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """JSON."""
    compile_timeout_s: float = 300.0
    """Until the task has told `{"phase": "run"}`: a cold compiler cache is slow."""
    run_timeout_s: float = 60.0
    """From then on."""
    fresh: bool = False
    """Whether it needs a process in which nothing ran before; nothing runs there after it."""


@dataclass(frozen=True)
class TaskFailure:
    """Why a task has no answer; it is the task's own fault."""

    reason: Reason
    detail: str
    """What was seen, in a sentence."""


@dataclass(frozen=True)
class TaskEnd:
    """A task that ended, one way or another."""

    identifier: str
    answer: Mapping[str, Any] | None
    failure: TaskFailure | None
    wall_s: float
    worker: str
    """Where it ran: `local/0`."""
    notes: tuple[str, ...] = ()
    """What was seen beside: global state it changed, that it ran a second time, ..."""

    def __post_init__(self) -> None:
        """Exactly one of answer and failure.

        Raises:
            ValueError: there are both, or neither.
        """
        if (self.answer is None) == (self.failure is None):
            raise ValueError(f"Task {self.identifier!r} has to end with an answer or a failure.")
