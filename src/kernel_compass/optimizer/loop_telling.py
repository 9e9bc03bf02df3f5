"""What is told of a run while it goes on, the same of every stage."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.optimizer.loop_budget import LoopBudget
from kernel_compass.optimizer.loop_setup import Tell
from kernel_compass.optimizer.loop_work import Work
from kernel_compass.records.loop import LoopEvent, Stage
from kernel_compass.records.trial import Trial


class Teller:
    """Tells an event with all that is known at its time.

    Args:
        tell: is told.
        budget: what was screened, and what is left.
        works: the workloads; they may come to it later.
    """

    def __init__(self, tell: Tell, budget: LoopBudget, works: Sequence[Work]) -> None:
        self._tell, self._budget, self._works = tell, budget, works

    def say(self, stage: Stage, text: str, trial: Trial | None = None) -> None:
        """Tell a line, and the trial that it is about."""
        known = {one.workload.name: one.accepted or one.best for one in self._works}
        best = {name: one for name, one in known.items() if one is not None}
        budget = self._budget
        event = LoopEvent(
            stage, text, trial, budget.trials, budget.most_trials, best, budget.left_s
        )
        self._tell(event)
