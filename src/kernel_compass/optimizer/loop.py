"""Stages 3 to 5: select, propose, screen, hold out.

It knows no torch, no process and no clock but the one it is given. What it does hangs on what it
is asked for, on the answers of an executor, on what the ledger holds already, and on the memory of
rejected ideas where there is one: with an executor that plays a recording back, and no memory, it
runs without a machine and gives the same study to the byte.

The stages share a `Work` for each workload: compiling takes configurations out of its spaces,
screens fill what was tried and the best, the hold-out what is accepted. What counters say goes
from `Diagnosing`, which is asked before each round, to `Rules` by `Findings`. `LoopSetup` stays as
it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernel_compass.optimizer.fewer_bytes import fewer_bytes
from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.optimizer.loop_answers import baseline_of, line_of
from kernel_compass.optimizer.loop_book import Book
from kernel_compass.optimizer.loop_budget import LoopBudget
from kernel_compass.optimizer.loop_diagnosing import Diagnosing
from kernel_compass.optimizer.loop_finals import Finals
from kernel_compass.optimizer.loop_screening import Screening
from kernel_compass.optimizer.loop_setup import LoopSetup, Tell, ends_of
from kernel_compass.optimizer.loop_static import prune_spaces
from kernel_compass.optimizer.loop_surveying import survey_baselines
from kernel_compass.optimizer.loop_telling import Teller
from kernel_compass.optimizer.loop_work import Work
from kernel_compass.optimizer.paying import objection
from kernel_compass.optimizer.proposers.findings import Findings
from kernel_compass.optimizer.selecting import select
from kernel_compass.records.execution import TaskFailure
from kernel_compass.records.loop import (
    Baseline,
    FewerBytes,
    LoopEnd,
    RegimeTime,
    Stage,
    Why,
)
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.selection import Measured, PassedOver, Selected
from kernel_compass.records.study import StudyState
from kernel_compass.records.trial import Action, Candidate, Outcome, Proposal, Reason, Trial

_DETAILS = {
    Why.FINISHED: "nothing is left that could improve by the minimum effect",
    Why.MINUTES: "the minutes are over",
    Why.TRIALS: "the trials are over",
    Why.STOPPED: "stopped by the user",
}


class BaselineFailed(Exception):
    """The baseline of a workload could not be timed: there is nothing to compare with."""

    def __init__(self, workload: str, failure: TaskFailure) -> None:
        super().__init__(f"{workload}: {failure.detail}")
        self.workload, self.failure = workload, failure


class Loop:
    """One run of a study, from its start or from where an earlier run was ended.

    Args:
        setup: what it is about.
        executor: where tasks run.
        ledger: where all is recorded; what it holds already is not done again.
        clock: seconds, monotonic.
        tell: told of everything.
        began: when the minutes began, by that clock; `None` = now.
    """

    def __init__(
        self,
        setup: LoopSetup,
        executor: Executor,
        ledger: Ledger,
        clock: Callable[[], float],
        tell: Tell = lambda _: None,
        began: float | None = None,
    ) -> None:
        self._setup, self._executor = setup, executor
        self._ledger, self._book = ledger, Book(ledger)
        counted = 1 + (Regime.WARM in setup.regimes)
        self._budget = LoopBudget(setup.request.limits, setup.options, clock, began, counted)
        self._baselines: dict[str, Baseline] = {}
        self._selected: tuple[Selected, ...] = ()
        self._works: list[Work] = []
        self._teller = Teller(tell, self._budget, self._works)

    def run(self) -> LoopEnd:
        """Run to the end; Ctrl-C ends it in good order.

        Raises:
            BaselineFailed: see there.
        """
        try:
            why = self._run()
        except KeyboardInterrupt:
            self._let_go("stopped by the user")
            self._ledger.set_state(StudyState.STOPPED, _DETAILS[Why.STOPPED])
            return self._end(Why.STOPPED)
        except BaseException as error:
            self._let_go(f"the run ended by {type(error).__name__}")
            self._ledger.set_state(StudyState.STOPPED, f"{type(error).__name__}: {error}"[:500])
            raise
        self._ledger.set_state(StudyState.FINISHED, _DETAILS[why])
        return self._end(why)

    def _run(self) -> Why:
        self._measure_baselines()
        self._select()
        prune_spaces(self._setup, self._executor, self._book, self._works, self._say_static)
        names = {work.workload.name: work.spaces for work in self._works}
        findings = Findings()
        survey_baselines(
            self._setup,
            self._executor,
            self._book,
            self._works,
            findings,
            lambda text: self._say(Stage.SELECT, text),
        )
        proposers = self._setup.proposers(names, self._baselines, findings)
        diagnosing = Diagnosing(
            self._setup,
            self._executor,
            self._book,
            self._budget,
            self._works,
            findings,
            lambda text: self._say(Stage.DIAGNOSE, text),
        )
        screening = Screening(
            self._setup,
            self._executor,
            self._book,
            self._budget,
            proposers,
            self._works,
            self._teller,
            diagnosing.look,
        )
        why = screening.run()
        self._book.drop_pending(finals=False)
        finals = Finals(self._setup, self._executor, self._book, self._teller, self._budget)
        finals.run(self._works)
        self._book.drop_pending()
        return why

    def _measure_baselines(self) -> None:
        """Times and floors of what is to be beaten, where no earlier run measured them."""
        tasks, by_task = [], {}
        for workload in self._setup.problem.workloads:
            known = self._book.baseline(workload, self._setup.regimes)
            if known is not None:
                self._baselines[workload.name] = known
                continue
            task = self._setup.tasks.baseline(workload, self._setup.regimes)
            tasks.append(task)
            by_task[task.identifier] = workload
        for end in ends_of(self._executor, tasks):
            workload = by_task[end.identifier]
            if end.failure is not None:
                raise BaselineFailed(workload.name, end.failure)
            assert end.answer is not None
            self._baselines[workload.name] = baseline_of(workload.name, end.answer)
        for workload in by_task.values():
            baseline = self._baselines[workload.name]
            self._book.keep_baseline(workload, baseline)
            times = ", ".join(f"{o.regime.value} {o.time_us:.2f} us" for o in baseline.regimes)
            self._say(Stage.BASELINE, f"{workload.name}: {times}")

    def _select(self) -> None:
        """The order of work; what is passed over is passed over by name."""
        works = [self._work(workload) for workload in self._setup.problem.workloads]
        measured = [
            Measured(work.workload.name, one.regime, one.time_us, floor_us, work.workload.weight)
            for work in works
            for one, floor_us in _floors(work)
        ]
        self._selected = tuple(select(measured, self._setup.options.minimum_effect))
        by_name = {work.workload.name: work for work in works}
        for one in self._selected:
            worked_on = one.passed_over in (None, PassedOver.NO_FLOOR)
            passed = "" if worked_on else f" passed over ({one.passed_over}):"
            unknown = " It is tried all the same." if worked_on and one.passed_over else ""
            self._say(Stage.SELECT, f"{one.workload}:{passed} {one.why}{unknown}")
            if worked_on:
                self._works.append(by_name[one.workload])

    def _work(self, workload: ProblemWorkload) -> Work:
        """A workload with the spaces in which something may pay; of the others it is recorded."""
        baseline = self._baselines[workload.name]
        kept = []
        for space in self._setup.spaces.get(workload.name, ()):
            found = objection(space, baseline, self._setup.budget_pct, self._setup.options)
            if found is None:
                kept.append(space)
            else:
                self._pass_over(workload, space, *found)
        return Work(workload, baseline, tuple(kept))

    def _pass_over(
        self, workload: ProblemWorkload, space: CandidateSpace, reason: Reason, detail: str
    ) -> None:
        candidate = Candidate(space.implementation, space.configs[0], space.format, space.source)
        why = f"all {len(space.configs)} configurations of {space.family}"
        proposal = Proposal(candidate, Action.IMPLEMENTATION, why, "providers")
        trial = self._book.ended(workload.name, proposal)
        if trial is None:
            trial = self._book.pass_over(workload.name, proposal, reason, detail)
        self._say(Stage.SELECT, line_of(trial), trial)

    def _let_go(self, detail: str) -> None:
        """What was in flight is nobody's fault, and is tried again."""
        self._book.let_go(detail)

    def _end(self, why: Why) -> LoopEnd:
        best = {work.workload.name: work.best for work in self._works if work.best is not None}
        accepted = {
            trial.workload: trial
            for trial in self._book.trials
            if trial.outcome is Outcome.ACCEPTED
        }
        self._say(Stage.ENDED, _DETAILS[why])
        found: Mapping[str, Trial] = {**best, **accepted}
        return LoopEnd(
            why, _DETAILS[why], self._selected, dict(self._baselines), found, self._fewer_bytes()
        )

    def _fewer_bytes(self) -> dict[str, FewerBytes]:
        rooms = {
            name: fewer_bytes(self._setup.spaces.get(name, ()), baseline, self._setup.l2_bytes)
            for name, baseline in self._baselines.items()
        }
        return {name: room for name, room in rooms.items() if room is not None}

    def _say_static(self, text: str, trial: Trial | None) -> None:
        self._say(Stage.STATIC, text, trial)

    def _say(self, stage: Stage, text: str, trial: Trial | None = None) -> None:
        self._teller.say(stage, text, trial)


def _floors(work: Work) -> list[tuple[RegimeTime, float | None]]:
    """Of each regime, the least that the baseline or any space that may pay could take."""
    found = []
    for one in work.baseline.regimes:
        known = [s.floors_us[one.regime] for s in work.spaces if one.regime in s.floors_us]
        known += [] if one.floor_us is None else [one.floor_us]
        found.append((one, min(known, default=None)))
    return found


def run_loop(
    setup: LoopSetup,
    executor: Executor,
    ledger: Ledger,
    clock: Callable[[], float],
    tell: Tell = lambda _: None,
    began: float | None = None,
) -> LoopEnd:
    """Run a study; see `Loop`."""
    return Loop(setup, executor, ledger, clock, tell, began).run()
