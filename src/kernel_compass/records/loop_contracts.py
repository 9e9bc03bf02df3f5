"""The protocols that the parts of the loop meet through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kernel_compass.records.contracts import Config
from kernel_compass.records.execution import Task, TaskEnd
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Proposal, Trial


class Executor(Protocol):
    """Where tasks run: workers of this machine, or a cluster's."""

    @property
    def capacity(self) -> int:
        """Tasks that run at once; more may be submitted and wait."""

    def submit(self, task: Task) -> None:
        """Take a task; returns at once.

        Raises:
            UsageError: a task of this identifier has not ended yet, or the executor is closed.
        """

    def ended(self, timeout_s: float | None = None) -> Iterator[TaskEnd]:
        """Tasks as they end, in that order, until none is left or the time is over.

        Each is given once; tasks submitted meanwhile are waited for too.

        Raises:
            MeasurementError: none can be run any more: the machines are lost. Those that have no
                end are not to blame.
        """

    def cancel(self, identifier: str) -> bool:
        """End a task, running or waiting; it then ends as `cancelled`. False: it had ended."""

    def close(self) -> None:
        """End all tasks and workers; none of their processes is left."""


class Strategy(Protocol):
    """Which points of an enumerated space are tried next: asked and told by index."""

    @property
    def name(self) -> str:
        """`model`, `exhaustive`, `random`, ..."""

    def ask(self, count: int) -> Sequence[int]:
        """Up to `count` indices that were never asked before; empty = nothing left to try."""

    def tell(self, index: int, time_us: float | None) -> None:
        """What was measured there; `None` = it failed."""


class StrategyInputs(Protocol):
    """What a strategy may know of a space before anything is measured."""

    @property
    def configs(self) -> Sequence[Config]:
        """All points, by index."""

    @property
    def estimates_us(self) -> Sequence[float | None]:
        """What the model says of each; `None` = nothing."""


class Proposer(Protocol):
    """A source of candidates."""

    @property
    def name(self) -> str:
        """`rules`, `providers`, `search`, ..."""

    def propose(
        self,
        problem: ProblemDescription,
        workload: ProblemWorkload,
        regimes: Sequence[Regime],
        tried: Sequence[Trial],
    ) -> Sequence[Proposal]:
        """New proposals in view of what was tried; empty = none for now."""
