"""The rounds: each workload's proposers are asked, the most promising candidates are screened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernel_compass.optimizer.left_out import left_out
from kernel_compass.optimizer.loop_answers import geometric_mean, line_of, screened
from kernel_compass.optimizer.loop_book import Book, key_of
from kernel_compass.optimizer.loop_budget import LoopBudget
from kernel_compass.optimizer.loop_setup import LoopSetup, ends_of
from kernel_compass.optimizer.loop_telling import Teller
from kernel_compass.optimizer.loop_work import Work, waiting
from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.loop import Baseline, Stage, Why
from kernel_compass.records.loop_contracts import Executor, Proposer
from kernel_compass.records.profile import Regime
from kernel_compass.records.study import Tell as StrategyTell
from kernel_compass.records.trial import Proposal, Reason, Trial


class Screening:
    """Screens until a limit, or until nothing is left that could pay."""

    def __init__(
        self,
        setup: LoopSetup,
        executor: Executor,
        book: Book,
        budget: LoopBudget,
        proposers: Sequence[Proposer],
        works: Sequence[Work],
        teller: Teller,
        before_round: Callable[[Sequence[Work]], None] = lambda _: None,
    ) -> None:
        self._setup, self._executor, self._book = setup, executor, book
        self._budget, self._proposers, self._works, self._teller = budget, proposers, works, teller
        self._before_round = before_round

    def run(self) -> Why:
        """Go round the workloads; why it ended."""
        while True:
            active = [work for work in self._works if work.left_because is None]
            if not active:
                return Why.FINISHED
            over = self._over()
            if over is not None:
                return over
            self._before_round(active)
            batch = [(work, one) for work in active for one in self._chosen(work)]
            cut = self._cut(batch)
            self._screen(batch[:cut])
            if cut < len(batch):
                return Why.TRIALS if self._budget.trials_left == 0 else Why.MINUTES

    def _over(self) -> Why | None:
        if self._book.has_finals and self._budget.trials_left != 0:
            return None  # as many as the run before: see _cut
        return self._budget.over(waiting(self._works))

    def _cut(self, batch: Sequence[tuple[Work, Proposal]]) -> int:
        """How many of a batch are screened: the trials that are left, or what a run screened that
        came to its hold-out."""
        left = self._budget.trials_left
        most = len(batch) if left is None else min(left, len(batch))
        if self._book.has_finals:
            known = [self._book.ended(w.workload.name, p) is not None for w, p in batch]
            most = min(most, known.index(False) if False in known else len(known))
        return most

    def _chosen(self, work: Work) -> list[Proposal]:
        """The most promising proposals of a workload, as many as are screened at once."""
        self._ask(work)
        found: list[Proposal] = []
        while work.queue and len(found) < self._setup.options.width:
            proposal = work.pick()
            if not self._passed_over(work, proposal):
                found.append(proposal)
            if not work.queue:
                self._ask(work)
        options = self._setup.options
        if not found:
            work.left_because = "nothing is left to try"
        elif work.since_better >= options.patience:
            work.left_because = (
                f"{work.since_better} candidates in a row did not improve it by "
                f"{100 * options.minimum_effect:g} %"
            )
            found = []
        if work.left_because:
            self._say(f"{work.workload.name}: {work.left_because}")
        return found

    def _ask(self, work: Work) -> None:
        for proposer in self._proposers:
            for one in proposer.propose(
                self._setup.problem, work.workload, self._setup.regimes, tuple(work.tried)
            ):
                key = key_of(work.workload.name, one.candidate, False)
                if key not in work.seen:
                    work.seen.add(key)
                    work.queue.append(one)
        gone = left_out(work.tried)
        work.queue = [one for one in work.queue if not gone.has(one.candidate)]
        work.queue.sort(key=lambda one: -_worth(one, work.baseline))

    def _passed_over(self, work: Work, proposal: Proposal) -> bool:
        """Whether it was rejected before, by another study."""
        setup, book = self._setup, self._book
        known = book.ended(work.workload.name, proposal)
        if known is not None and known.reason is Reason.REMEMBERED:
            work.take_in(known, setup.options.minimum_effect)
            return True
        if known is not None or setup.memory is None or setup.idea is None:
            return False
        idea = setup.idea(work.workload, proposal.candidate)
        found = setup.memory.recall(idea)
        if found is None or found.study == book.study:
            return False
        detail = f"{found.reason.value} in {found.study}:{found.trial}: {found.detail}"
        trial = book.pass_over(work.workload.name, proposal, Reason.REMEMBERED, detail)
        work.take_in(trial, setup.options.minimum_effect)
        self._say(line_of(trial), trial)
        return True

    def _screen(self, batch: Sequence[tuple[Work, Proposal]]) -> None:
        """Try a batch; what is learned of it is learned in its order, whichever ends first."""
        found: dict[int, Trial] = {}
        placed: list[tuple[Work, int]] = []
        begun: dict[str, tuple[Work, int, Proposal]] = {}
        tasks = []
        for work, asked in batch:
            known = self._book.ended(work.workload.name, asked)
            if known is not None:
                found[known.number] = known
                placed.append((work, known.number))
                self._budget.screened(None)
                continue
            number, proposal = self._book.begin(work.workload.name, asked)
            placed.append((work, number))
            task = self._setup.tasks.screen(
                number, work.workload, proposal.candidate, self._setup.regimes
            )
            begun[task.identifier] = (work, number, proposal)
            tasks.append(task)
        for end in ends_of(self._executor, tasks):
            work, number, proposal = begun[end.identifier]
            found[number] = self._ended(work, number, proposal, end)
        for work, number in placed:
            work.take_in(found[number], self._setup.options.minimum_effect)

    def _ended(self, work: Work, number: int, proposal: Proposal, end: TaskEnd) -> Trial:
        effect = self._setup.options.minimum_effect
        trial = screened(number, work.workload.name, proposal, end, effect)
        self._book.end(trial, tells=self._tells(work, trial))
        self._budget.screened(end.wall_s)
        if self._setup.memory is not None and self._setup.idea is not None:
            idea = self._setup.idea(work.workload, proposal.candidate)
            self._setup.memory.remember(idea, trial, self._book.study)
        self._say(line_of(trial), trial)
        return trial

    def _tells(self, work: Work, trial: Trial) -> list[StrategyTell]:
        found = []
        for proposer in self._proposers:
            told = getattr(proposer, "tell_of", None)
            if told is not None and (one := told(work.workload, trial)) is not None:
                found.append(one)
        return found

    def _say(self, text: str, trial: Trial | None = None) -> None:
        self._teller.say(Stage.SCREEN, text, trial)


def _worth(proposal: Proposal, baseline: Baseline) -> float:
    """Predicted gain per second of trying it; without a prediction it is expected to be even."""
    return (predicted_gain(proposal, baseline.times_us) - 1) / max(proposal.cost_s, 1e-3)


def predicted_gain(proposal: Proposal, times_us: Mapping[Regime, float]) -> float:
    """Baseline over prediction, over the regimes that both know."""
    if proposal.prediction is None:
        return 1.0
    predicted = proposal.prediction.times_us
    ratios = [times_us[r] / predicted[r] for r in predicted if r in times_us and predicted[r] > 0]
    return geometric_mean(ratios) if ratios else 1.0
