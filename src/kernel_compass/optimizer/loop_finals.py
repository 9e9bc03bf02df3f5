"""The hold-out: the best of the screens, judged anew and timed in fresh processes, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from kernel_compass.analysis.hold_out import confirm
from kernel_compass.errors import MeasurementError
from kernel_compass.optimizer.hold_out_samples import hold_out_samples
from kernel_compass.optimizer.loop_answers import gain_of, line_of, results_text
from kernel_compass.optimizer.loop_book import FINALS, Book
from kernel_compass.optimizer.loop_budget import LoopBudget
from kernel_compass.optimizer.loop_explaining import explained
from kernel_compass.optimizer.loop_sanitizing import sanitized
from kernel_compass.optimizer.loop_setup import LoopSetup, ends_of
from kernel_compass.optimizer.loop_telling import Teller
from kernel_compass.optimizer.loop_work import Work
from kernel_compass.records.comparison import ComparisonResult, Rejection, Rule, Verdict
from kernel_compass.records.environment import Environment
from kernel_compass.records.execution import TaskEnd, TaskFailure
from kernel_compass.records.loop import Stage
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Outcome, Proposal, Reason, RegimeResult, Trial

OVER = "the minutes were over before a launch could be counted"
ALPHA = 0.05
"""Chance of a wrong verdict over the finalists of a workload together, those of all rounds."""


@dataclass(frozen=True)
class Finalist:
    """A candidate in the hold-out."""

    work: Work
    number: int
    proposal: Proposal
    judged: Trial | None = None
    """What the judge said, with all there is; `None` = not yet."""


@dataclass(frozen=True)
class HeldOut:
    """What fresh processes measured, and the verdict on it."""

    verdict: Verdict
    samples: Sequence[PairedSamples]


@dataclass(frozen=True)
class Ended:
    """How a finalist ends."""

    trial: Trial
    environment: Environment | None = None
    """Where it was held out."""


_Samples = Mapping[int, Sequence[PairedSamples] | TaskFailure]


class Finals:
    """Judges finalists, times them in fresh processes, and accepts the best of each workload."""

    def __init__(
        self,
        setup: LoopSetup,
        executor: Executor,
        book: Book,
        teller: Teller,
        budget: LoopBudget,
    ) -> None:
        self._setup, self._executor, self._book, self._teller = setup, executor, book, teller
        self._budget = budget
        self._most = 1

    def run(self, works: Sequence[Work]) -> None:
        """Hold out all finalists; each ends as accepted or rejected.

        Args:
            works: the workloads.
        """
        held: dict[str, list[Proposal]] = {work.workload.name: [] for work in works}
        for number in range(self._setup.options.rounds):
            missing = [work for work in works if work.accepted is None]
            chosen = [
                (work, proposal)
                for work in missing
                for proposal in _finalists(work, self._setup, held[work.workload.name])
            ]
            if not chosen or (number and not self._budget.has_room(len(chosen))):
                return
            for work, proposal in chosen:
                held[work.workload.name].append(proposal)
            self._round(missing, chosen)

    def _round(self, works: Sequence[Work], chosen: Sequence[tuple[Work, Proposal]]) -> None:
        self._most = max(sum(work is one for one, _ in chosen) for work in works)
        waiting: list[Finalist] = []
        for work, proposal in chosen:
            known = self._book.ended(work.workload.name, proposal)
            if known is None:
                number, proposed = self._book.begin(work.workload.name, proposal)
                waiting.append(Finalist(work, number, proposed))
            elif known.outcome is Outcome.ACCEPTED:
                work.accepted = known
        judged = self._judge(waiting)
        if self._setup.options.sanitize:
            judged = self._sanitize(judged)
        trials = self._explained(judged, self._verdicts(judged))
        for work in works:
            self._decide(work, [one for one in judged if one.work is work], trials)

    def _judge(self, waiting: Sequence[Finalist]) -> list[Finalist]:
        """Those in whom the judge, with all there is, finds nothing."""
        tasks, by_task, found = [], {}, {}
        for one in waiting:
            candidate = one.proposal.candidate
            task = self._setup.tasks.judge(one.number, one.work.workload, candidate)
            tasks.append(task)
            by_task[task.identifier] = one
        for end in ends_of(self._executor, tasks):
            one = by_task[end.identifier]
            trial = _judged(one, end)
            if trial.reason is None:
                found[one.number] = replace(one, judged=trial)
                self._say(f"{one.number:>4} {trial.workload}  judged: {trial.detail}")
            else:
                self._end(one, trial)
        return [found[number] for number in sorted(found)]

    def _sanitize(self, judged: Sequence[Finalist]) -> list[Finalist]:
        """Those in whom compute-sanitizer finds nothing."""
        tasks, by_task, found = [], {}, {}
        for one in judged:
            candidate = one.proposal.candidate
            task = self._setup.tasks.sanitize(one.number, one.work.workload, candidate)
            tasks.append(task)
            by_task[task.identifier] = one
        for end in ends_of(self._executor, tasks):
            one = by_task[end.identifier]
            assert one.judged is not None
            trial = sanitized(one.judged, end)
            if trial.reason is None:
                found[one.number] = replace(one, judged=trial)
                self._say(f"{one.number:>4} {trial.workload}  sanitized: {trial.notes[-1]}")
            else:
                self._end(one, trial)
        return [found[number] for number in sorted(found)]

    def _verdicts(self, judged: Sequence[Finalist]) -> dict[int, HeldOut | Trial]:
        """What the hold-out says of each, or how it failed."""
        found: dict[int, HeldOut | Trial] = {}
        samples = self._samples(judged)
        options = self._setup.options
        rule = Rule(
            minimum_effect=options.minimum_effect,
            hold_out_processes=options.processes,
            hold_out_alpha=ALPHA / (self._most * options.rounds),
        )
        for one in judged:
            assert one.judged is not None
            taken = samples[one.number]
            if isinstance(taken, TaskFailure):
                found[one.number] = replace(
                    one.judged, outcome=Outcome.FAILED, reason=taken.reason, detail=taken.detail
                )
                continue
            try:
                found[one.number] = HeldOut(confirm(taken, rule, self._setup.regimes), taken)
            except MeasurementError as error:
                found[one.number] = replace(
                    one.judged,
                    outcome=Outcome.REJECTED,
                    reason=Reason.CANNOT_BE_TIMED,
                    detail=error.found,
                )
        return found

    def _samples(self, judged: Sequence[Finalist]) -> _Samples:
        """Of all together; where a process fails, of each alone: the right one is blamed."""
        if not judged:
            return {}
        taken = self._taken(judged)
        if not isinstance(taken, TaskFailure):
            return taken
        if len(judged) == 1:
            return {judged[0].number: taken}
        self._say(f"A process of the hold-out failed ({taken.detail}): each finalist alone.")
        return {number: one for f in judged for number, one in self._samples([f]).items()}

    def _taken(self, judged: Sequence[Finalist]) -> dict[int, list[PairedSamples]] | TaskFailure:
        regimes = tuple(dict.fromkeys((*self._setup.regimes, *self._setup.others)))
        finals = [(one.work.workload, one.proposal.candidate) for one in judged]
        name = f"finals {judged[0].number}" if len(judged) == 1 else "finals"
        found = hold_out_samples(
            self._executor, self._setup.tasks, finals, regimes, name, self._say_process
        )
        if isinstance(found, TaskEnd):
            assert found.failure is not None
            said = " ".join((found.failure.detail, *found.notes))
            return replace(found.failure, detail=said)
        return {one.number: samples for one, samples in zip(judged, found, strict=True)}

    def _say_process(self, ended: int, of: int) -> None:
        self._say(f"hold-out: process {ended} of {of}")

    def _explained(
        self, judged: Sequence[Finalist], verdicts: Mapping[int, HeldOut | Trial]
    ) -> dict[int, Ended]:
        """How each ends, and of those that passed what the counters say; all in one process."""
        ends = {one.number: _ended(one, verdicts[one.number]) for one in judged}
        passed = [one for one in judged if ends[one.number].trial.outcome is Outcome.ACCEPTED]
        if not passed:
            return ends
        for one, found in zip(passed, self._counted(passed), strict=True):
            before = ends[one.number]
            ends[one.number] = replace(before, trial=explained(before.trial, found))
        return ends

    def _counted(self, passed: Sequence[Finalist]) -> Sequence[Mapping[str, Any]]:
        """What launches of each read, in as many regimes as there is time for."""
        regimes = (Regime.COLD, Regime.WARM)[: self._budget.counts(len(passed))]
        if not regimes:
            return [{"unavailable": OVER}] * len(passed)
        finals = [(one.work.workload, one.proposal.candidate) for one in passed]
        task = self._setup.tasks.explain(finals, regimes, self._budget.left_s)
        found: Sequence[Mapping[str, Any]] = [{"unavailable": "no answer"}] * len(passed)
        for end in ends_of(self._executor, [task]):
            if end.answer is not None:
                found = end.answer["counted"]
            elif end.failure is not None:
                found = [{"unavailable": end.failure.detail}] * len(passed)
        return found

    def _decide(self, work: Work, judged: Sequence[Finalist], trials: Mapping[int, Ended]) -> None:
        """Accept the best of a workload; of what is as right and slower, say so."""
        ended = [(one, trials[one.number]) for one in judged]
        passed = [row for row in ended if row[1].trial.outcome is Outcome.ACCEPTED]
        passed.sort(key=lambda row: (-(self._asked_gain(row[1].trial)), row[0].number))
        winner = work.accepted
        if winner is None and passed:
            one, end = passed[0]
            winner = end.trial
            entry = self._setup.entry(work.workload, winner, end.environment)
            work.accepted = winner
            self._end(one, winner, entries=[] if entry is None else [entry])
        for one, end in ended:
            trial = end.trial
            if winner is not None and trial.number == winner.number:
                continue
            if trial.outcome is Outcome.ACCEPTED:
                assert winner is not None
                detail = f"{results_text(trial.results)}, and trial {winner.number} is faster"
                self._end(one, _outdone(trial, detail))
            else:
                self._end(one, trial)

    def _asked_gain(self, trial: Trial) -> float:
        asked = [r for r in trial.results if r.regime in self._setup.regimes]
        return gain_of(replace(trial, results=tuple(asked))) or 0.0

    def _end(self, one: Finalist, trial: Trial, entries: Sequence[Any] = ()) -> None:
        self._book.end(trial, entries)
        if self._setup.memory is not None and self._setup.idea is not None:
            idea = self._setup.idea(one.work.workload, one.proposal.candidate)
            self._setup.memory.remember(idea, trial, self._book.study)
        self._say(line_of(trial), trial)

    def _say(self, text: str, trial: Trial | None = None) -> None:
        self._teller.say(Stage.FINALS, text, trial)


def _finalists(work: Work, setup: LoopSetup, held: Sequence[Proposal]) -> list[Proposal]:
    """The best of a workload's screens that are near to the best, as proposals of their own.

    Args:
        work: with its screens.
        setup: how many at most.
        held: those that were held out before.
    """
    before = [one.candidate for one in held]
    passed = [
        t
        for t in work.tried
        if t.outcome is Outcome.SCREENED and t.results and t.proposal.candidate not in before
    ]
    passed.sort(key=lambda t: (-(gain_of(t) or 0.0), t.number))
    options = setup.options
    if not passed:
        return []
    least = (gain_of(passed[0]) or 0.0) / (1 + options.finalists_within)
    near = [t for t in passed if (gain_of(t) or 0.0) >= least][: options.finalists]
    return [
        replace(
            t.proposal,
            proposer=FINALS,
            why=f"{results_text(t.results)} when it was screened, as trial {t.number}, proposed by "
            f"{t.proposal.proposer}",
        )
        for t in near
    ]


def _outdone(trial: Trial, detail: str) -> Trial:
    return replace(trial, outcome=Outcome.REJECTED, reason=Reason.OUTDONE, detail=detail)


def _judged(one: Finalist, end: TaskEnd) -> Trial:
    name = one.work.workload.name
    if end.failure is not None:
        reason, detail = end.failure.reason, end.failure.detail
        failed = Outcome.FAILED
        return Trial(one.number, name, one.proposal, failed, reason, detail, notes=end.notes)
    assert end.answer is not None
    said = end.answer["judgement"]
    return Trial(
        one.number,
        name,
        one.proposal,
        Outcome.REJECTED if said["reason"] else Outcome.SCREENED,
        Reason(said["reason"]) if said["reason"] else None,
        said["detail"],
        fidelity_error_pct=said["fidelity_error_pct"],
        format_error_pct=said["format_error_pct"],
        added_bytes=end.answer.get("added_bytes"),
        notes=(*said.get("unseen", ()), *end.notes),
    )


def _ended(one: Finalist, found: HeldOut | Trial) -> Ended:
    if isinstance(found, Trial):
        return Ended(found)
    return Ended(_held_out(one, found), found.samples[0].environment)


def _held_out(one: Finalist, held: HeldOut) -> Trial:
    assert one.judged is not None
    verdict = held.verdict
    results = tuple(_result(part, held.samples) for part in verdict.results)
    notes = tuple(dict.fromkeys(w for part in verdict.results for w in part.warnings))
    reason = None
    if verdict.rejection is Rejection.NOT_FASTER:
        reason = Reason.HOLD_OUT
    elif verdict.rejection is Rejection.INFERIOR_ELSEWHERE:
        reason = Reason.INFERIOR_ELSEWHERE
    return replace(
        one.judged,
        outcome=Outcome.ACCEPTED if reason is None else Outcome.REJECTED,
        reason=reason,
        detail="; ".join(verdict.reasons),
        results=results,
        notes=(*one.judged.notes, *notes),
    )


def _result(part: ComparisonResult, samples: Sequence[PairedSamples]) -> RegimeResult:
    """With medians over all processes, each counted alike."""
    own = [one for one in samples if one.regime is part.regime]
    baseline = median([median(one.baseline_us) for one in own])
    candidate = median([median(one.candidate_us) for one in own])
    return RegimeResult(part.regime, baseline, candidate, part.speedup, hold_out=True)
