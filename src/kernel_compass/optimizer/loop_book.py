"""The loop's view of its ledger: what was tried before is answered from there.

A run is a function of the answers it gets. So a resumed one goes through all its steps again, and
of each trial that has ended already takes the answer that was recorded; what was in flight is
tried again under its number. It then stands where the run that was killed stood.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kernel_compass.errors import StudyError
from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.records.contracts import ConfigKey
from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.loop import Baseline, RegimeTime
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.study import PendingTrial, Tell
from kernel_compass.records.trial import Candidate, Outcome, Proposal, Reason, Trial

FINALS = "finals"
"""The proposer of what goes into a hold-out."""
_ANSWER = "answer "
Key = tuple[str, bool, str, str | None, ConfigKey]


def key_of(workload: str, candidate: Candidate, final: bool) -> Key:
    """What is tried once in a study."""
    return workload, final, *candidate.key


class Book:
    """Trials by what was tried; writes to the ledger alone."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        recorded = ledger.recorded
        self.study = recorded.study.identifier
        self._ended = {_key_of_trial(one): one for one in recorded.trials}
        self._pending: dict[Key, PendingTrial] = {}
        for one in recorded.pending:
            key = key_of(one.workload, one.proposal.candidate, one.proposal.proposer == FINALS)
            self._pending[key] = one
        self._next = recorded.next_number
        self._begun: list[int] = []
        """In this run; those that ended are among them."""
        self._tells = {(t.stream, t.index): t.time_us for t in recorded.tells}
        self._answers = dict(_answers(recorded.tells))
        self.has_finals = any(key[1] for key in (*self._ended, *self._pending))
        """Whether an earlier run came to the hold-out: what it screened is what there is."""

    def ended(self, workload: str, proposal: Proposal) -> Trial | None:
        """How this was found before; `None` = it was not tried to its end."""
        return self._ended.get(_key(workload, proposal))

    def begin(self, workload: str, proposal: Proposal) -> tuple[int, Proposal]:
        """Record that it is about to be tried; its number, and the proposal as it is recorded."""
        pending = self._pending.pop(_key(workload, proposal), None)
        number = pending.number if pending else self._next
        proposal = pending.proposal if pending else proposal
        self._next = max(self._next, number + 1)
        self._begun.append(number)
        self.ledger.begin(number, workload, proposal)
        return number, proposal

    def end(
        self, trial: Trial, entries: Sequence[DispatchEntry] = (), tells: Sequence[Tell] = ()
    ) -> None:
        """Record how it ended; a rejection always with what was found."""
        if trial.reason is not None and not trial.detail.strip():
            said = "; ".join(trial.notes) or f"nothing but {trial.reason.value} was said"
            trial = replace(trial, detail=said)
        self.ledger.end(trial, entries, tells)
        self._ended[_key_of_trial(trial)] = trial

    def pass_over(self, workload: str, proposal: Proposal, reason: Reason, detail: str) -> Trial:
        """Record what is not tried, and why."""
        pending = self._pending.pop(_key(workload, proposal), None)
        number = pending.number if pending else self._next
        self._next = max(self._next, number + 1)
        if pending:
            self.ledger.begin(number, workload, pending.proposal)
            proposal = pending.proposal
        trial = Trial(number, workload, proposal, Outcome.REJECTED, reason, detail)
        self.end(trial)
        return trial

    def let_go(self, detail: str) -> None:
        """Give up what this run began and did not end; wherever it was broken off."""
        waiting = {one.number for one in self.ledger.recorded.pending}
        for number in sorted(waiting.intersection(self._begun)):
            with suppress(StudyError):  # broken off before it was begun, or given up already
                self.ledger.release(number, detail)

    def drop_pending(self, finals: bool = True) -> None:
        """End what was in flight once and is not asked for any more: screens, or finals."""
        dropped = {key: one for key, one in self._pending.items() if key[1] is finals}
        for key, one in sorted(dropped.items(), key=lambda row: row[1].number):
            del self._pending[key]
            self.ledger.begin(one.number, one.workload, one.proposal)
            detail = "It was interrupted, and the resumed run did not ask for it again."
            trial = Trial(
                one.number,
                one.workload,
                one.proposal,
                Outcome.FAILED,
                Reason.CANCELLED,
                detail,
            )
            self.end(trial)

    def keep_answer(self, name: str, answer: Any) -> None:
        """Record what the run learned beside its trials, so that a resumed run sees the same.

        Args:
            name: without spaces; once a study.
            answer: JSON; it stands in a tell's stream, the one text that a ledger takes anywhere.
        """
        self._answers[name] = answer
        self.ledger.tell(Tell(f"{_ANSWER}{name} {json.dumps(answer)}", 0, None))

    def answer(self, name: str) -> Any:
        """What an earlier run, or this one, kept under a name; `None` = nothing."""
        return self._answers.get(name)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that ended, by number."""
        return tuple(sorted(self._ended.values(), key=lambda one: one.number))

    def baseline(self, workload: ProblemWorkload, regimes: Sequence[Regime]) -> Baseline | None:
        """The baseline as it was measured before; `None` = it was not, or not in all regimes."""
        return _baseline(self._tells, workload, regimes)

    def keep_baseline(self, workload: ProblemWorkload, baseline: Baseline) -> None:
        """Record it, so that a resumed run sees the same."""
        for one in baseline.regimes:
            stream = _stream(workload, one.regime)
            self.ledger.tell(Tell(stream, 1, one.floor_us))
            self.ledger.tell(Tell(stream, 0, one.time_us))


def baseline_told(
    tells: Sequence[Tell], workload: ProblemWorkload, regimes: Sequence[Regime]
) -> Baseline | None:
    """The baseline that a ledger's tells hold; `None` = not in all regimes."""
    return _baseline({(t.stream, t.index): t.time_us for t in tells}, workload, regimes)


def _baseline(
    times: Mapping[tuple[str, int], float | None],
    workload: ProblemWorkload,
    regimes: Sequence[Regime],
) -> Baseline | None:
    found = []
    for regime in regimes:
        time_us = times.get((_stream(workload, regime), 0))
        if time_us is None:
            return None
        floor_us = times.get((_stream(workload, regime), 1))
        found.append(RegimeTime(regime, time_us, floor_us))
    return Baseline(workload.name, tuple(found))


def _answers(tells: Sequence[Tell]) -> Iterator[tuple[str, Any]]:
    for one in tells:
        if one.stream.startswith(_ANSWER):
            name, _, text = one.stream.removeprefix(_ANSWER).partition(" ")
            yield name, json.loads(text)


def _stream(workload: ProblemWorkload, regime: Regime) -> str:
    return f"baseline {workload.name} {regime.value}"


def _key(workload: str, proposal: Proposal) -> Key:
    return key_of(workload, proposal.candidate, proposal.proposer == FINALS)


def _key_of_trial(trial: Trial) -> Key:
    return _key(trial.workload, trial.proposal)
