"""What a run of the loop is given, and how it waits for tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernel_compass.optimizer.ledger_memory import RejectionMemory
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.optimizer.proposers.findings import Findings
from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.environment import Environment
from kernel_compass.records.execution import Task, TaskEnd
from kernel_compass.records.loop import Baseline, LoopEvent, LoopOptions
from kernel_compass.records.loop_contracts import Executor, Proposer
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.rejected import Idea
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.study import StudyRequest
from kernel_compass.records.trial import Candidate, Trial

Spaces = Mapping[str, Sequence[CandidateSpace]]
"""By workload."""
Tell = Callable[[LoopEvent], None]


class MakeProposers(Protocol):
    """Makes the sources of candidates, once the baseline is known."""

    def __call__(
        self, spaces: Spaces, baselines: Mapping[str, Baseline], findings: Findings
    ) -> Sequence[Proposer]:
        """In the order in which they are asked; `findings` is filled while they are."""


class MakeEntry(Protocol):
    """Makes an entry of a dispatch table."""

    def __call__(
        self, workload: ProblemWorkload, trial: Trial, environment: Environment | None
    ) -> DispatchEntry | None:
        """Of an accepted trial; `None` where the workload is no product."""


@dataclass(frozen=True)
class LoopSetup:
    """All that the loop knows before it starts."""

    problem: ProblemDescription
    request: StudyRequest
    tasks: TaskMaker
    spaces: Spaces
    proposers: MakeProposers
    entry: MakeEntry
    others: tuple[Regime, ...] = ()
    """Regimes in which a candidate may not be inferior."""
    idea: Callable[[ProblemWorkload, Candidate], Idea] | None = None
    """What is looked up among rejected ideas; `None` = nothing is."""
    memory: RejectionMemory | None = None
    l2_bytes: float | None = None
    """What L2 effectively holds, by the calibration; `None` = not known."""

    @property
    def options(self) -> LoopOptions:
        """How the loop works."""
        return self.tasks.options

    @property
    def regimes(self) -> tuple[Regime, ...]:
        """Those in which a candidate must win."""
        return self.request.regimes

    @property
    def budget_pct(self) -> float:
        """The largest error, percent."""
        asked = self.request.error_budget_pct
        return self.problem.error_budget_pct if asked is None else asked


def ends_of(executor: Executor, tasks: Sequence[Task]) -> Iterator[TaskEnd]:
    """Submit tasks and give each end as it comes; whoever breaks off cancels the rest.

    Raises:
        KeyboardInterrupt: interrupted; all of them have ended by then.
    """
    open_tasks = set()
    try:
        for task in tasks:
            executor.submit(task)
            open_tasks.add(task.identifier)
        while open_tasks:
            for end in executor.ended():
                if end.identifier in open_tasks:
                    open_tasks.discard(end.identifier)
                    yield end
    finally:
        for identifier in sorted(open_tasks):
            executor.cancel(identifier)
        while open_tasks:
            found = [end.identifier for end in executor.ended()]
            open_tasks = open_tasks - set(found) if found else set()
