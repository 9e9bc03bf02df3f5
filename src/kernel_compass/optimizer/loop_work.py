"""What is going on at a workload while the loop runs; every stage reads and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_compass.optimizer.loop_answers import gain_of
from kernel_compass.optimizer.loop_book import Key
from kernel_compass.records.loop import Baseline
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Outcome, Proposal, Reason, Trial

SEARCH = "search"
"""The proposer that explores: its points need not look promising."""


@dataclass
class Work:
    """What is going on at one workload."""

    workload: ProblemWorkload
    baseline: Baseline
    spaces: Sequence[CandidateSpace]
    """Those in which something may pay, without what a compilation ruled out."""
    queue: list[Proposal] = field(default_factory=list)
    seen: set[Key] = field(default_factory=set)
    tried: list[Trial] = field(default_factory=list)
    best: Trial | None = None
    """Of those that passed the screen."""
    accepted: Trial | None = None
    """By the hold-out."""
    since_better: int = 0
    """Screens since the best got better by the minimum effect."""
    mark: float = 1.0
    """The gain that counts as the last improvement."""
    turn: int = 0
    left_because: str | None = None

    def pick(self) -> Proposal:
        """The next of the queue: in turns the search's, which may explore, and the most promising
        of the others, which would starve it else."""
        searched = [one for one in self.queue if one.proposer == SEARCH]
        others = [one for one in self.queue if one.proposer != SEARCH]
        first, second = (searched, others) if self.turn % 2 else (others, searched)
        self.turn += 1
        found = (first or second)[0]
        self.queue.remove(found)
        return found

    def take_in(self, trial: Trial, minimum_effect: float) -> None:
        """Learn how a screen ended."""
        self.tried.append(trial)
        if trial.reason in (Reason.REMEMBERED, Reason.CANNOT_PAY):
            return
        self.since_better += 1
        gain = gain_of(trial)
        if trial.outcome is not Outcome.SCREENED or gain is None:
            return
        if self.best is None or gain > (gain_of(self.best) or 0.0):
            self.best = trial
        if gain >= self.mark * (1 + minimum_effect):
            self.mark, self.since_better = gain, 0


def waiting(works: Sequence[Work]) -> int:
    """How many of them have something for the hold-out."""
    return sum(work.best is not None for work in works)
