"""The step loop's view of its ledger: what was tried before is answered from there."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from kernel_compass.errors import StudyError
from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.optimizer.step_doors import key_of
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepEntry,
    StepProposal,
    StepTrial,
)
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import PendingTrial
from kernel_compass.records.trial import (
    Action,
    Candidate,
    Outcome,
    Prediction,
    Proposal,
    Reason,
    RegimeResult,
    Trial,
)

WHOLE = "the whole step"
"""What the trial in fresh processes is of."""
PROPOSER = "step"
FINAL = Candidate("all changes")
_ACTIONS = {
    StepActionKind.PRODUCT: Action.IMPLEMENTATION,
    StepActionKind.TRITON_CONFIG: Action.CONFIG,
    StepActionKind.LAYOUT: Action.FUSION,
    StepActionKind.MATMUL_PRECISION: Action.PRECISION,
    StepActionKind.SDPA_BACKEND: Action.IMPLEMENTATION,
    StepActionKind.COMPILE_REGION: Action.FUSION,
    StepActionKind.STEP_GRAPH: Action.GRAPH_CAPTURE,
}


class StepBook:
    """Trials by what was tried on top of what; writes to the ledger alone."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        recorded = ledger.recorded
        self.study = recorded.study.identifier
        self._next = recorded.next_number
        step = recorded.step or StepStudy()
        self._ended: dict[str, StepTrial] = {}
        self._exactly: set[str] = set()
        kept: list[StepAction] = []
        for one in step.steps:
            self._note(tuple(kept), one)
            if one.reason is None:
                kept.append(one.proposal.action)
        self._pending: dict[str, PendingTrial] = {
            repr((one.workload, one.proposal.candidate)): one for one in recorded.pending
        }
        self.final = step.final
        self._begun: list[int] = []

    def ended(self, accepted: tuple[StepAction, ...], action: StepAction) -> StepTrial | None:
        """How this ended before, on top of the same changes."""
        return self._ended.get(_key(accepted, action))

    def was_tried(self, accepted: tuple[StepAction, ...], action: StepAction) -> bool:
        """Whether this very implementation was, on top of the same changes."""
        return _exact_key(accepted, action) in self._exactly

    def begin(self, proposal: StepProposal, step_us: float | None) -> int:
        """Write down what is about to be tried and what it should bring; its number."""
        brief = brief_of(proposal, step_us)
        return self._begin(proposal.action.target.what, brief)

    def begin_final(self, why: str) -> int:
        """The same for all changes in fresh processes."""
        return self._begin(WHOLE, final_proposal(why))

    def end(
        self, accepted: tuple[StepAction, ...], trial: StepTrial, step_us: float | None
    ) -> None:
        """Record how it ended; whatever was not begun was not tried."""
        self.ledger.end(self._brief(trial, step_us), step=trial)
        self._note(accepted, trial)

    def end_final(self, trial: Trial, entries: tuple[StepEntry, ...]) -> None:
        """Record what the fresh processes found, and what goes into a table."""
        self.ledger.end(trial, step_entries=entries)

    def number(self) -> int:
        """Of a trial that is passed over."""
        number, self._next = self._next, self._next + 1
        return number

    def let_go(self, detail: str) -> None:
        """Give up what this run began and did not end."""
        waiting = {one.number for one in self.ledger.recorded.pending}
        for number in sorted(waiting.intersection(self._begun)):
            with suppress(StudyError):
                self.ledger.release(number, detail)

    def drop_pending(self) -> None:
        """End what was in flight once and is not asked for any more."""
        for one in self._pending.values():
            self.ledger.begin(one.number, one.workload, one.proposal)
            detail = "It was interrupted, and the resumed run did not ask for it again."
            failed = Outcome.FAILED
            self.ledger.end(
                Trial(one.number, one.workload, one.proposal, failed, Reason.CANCELLED, detail)
            )
        self._pending = {}

    def _note(self, accepted: tuple[StepAction, ...], trial: StepTrial) -> None:
        self._ended[_key(accepted, trial.proposal.action)] = trial
        self._exactly.add(_exact_key(accepted, trial.proposal.action))

    def _begin(self, what: str, brief: Proposal) -> int:
        pending = self._pending.pop(repr((what, brief.candidate)), None)
        number = pending.number if pending else self.number()
        self._begun.append(number)
        self.ledger.begin(number, what, pending.proposal if pending else brief)
        return number

    def _brief(self, trial: StepTrial, step_us: float | None) -> Trial:
        brief = brief_of(trial.proposal, step_us)
        for one in self.ledger.recorded.pending:
            if one.number == trial.number:  # as it was begun, by this run or an earlier one
                brief = one.proposal
        results: tuple[RegimeResult, ...] = ()
        before, after = trial.before_us, trial.after_us
        if trial.speedup is not None and before and after:
            results = (RegimeResult(Regime.IN_SITU, before, after, trial.speedup, False),)
        errors = [one.relative_pct for one in trial.outputs]
        return Trial(
            trial.number,
            trial.proposal.action.target.what,
            brief,
            trial.outcome,
            trial.reason,
            trial.detail,
            results,
            format_error_pct=max(errors) if errors else None,
            added_bytes=trial.added_bytes or None,
        )


def brief_of(proposal: StepProposal, step_us: float | None) -> Proposal:
    """A change as every study's trials name it."""
    action = proposal.action
    given = action.candidate
    settings = {k: v if isinstance(v, int | bool | str) else str(v)
                for k, v in {**action.config, **action.settings}.items()}  # fmt: skip
    prediction = None
    if step_us is not None and proposal.saves_us is not None:
        left = max(step_us - proposal.saves_us, 1e-3)
        prediction = Prediction({Regime.IN_SITU: left}, "Amdahl on the step's own shares")
    return Proposal(
        Candidate(
            action.kind.value if given is None else given.implementation,
            settings if given is None else given.config,
            None if given is None else given.format,
            "" if given is None else given.source,
        ),
        _ACTIONS[action.kind],
        proposal.why,
        PROPOSER,
        proposal.evidence,
        prediction,
    )


def final_proposal(why: str) -> Proposal:
    """All changes that stayed, in fresh processes."""
    return Proposal(FINAL, Action.IMPLEMENTATION, why, "finals")


def _exact_key(accepted: tuple[StepAction, ...], action: StepAction) -> str:
    return "\n".join(map(key_of, (*accepted, action)))


def _key(accepted: tuple[StepAction, ...], action: StepAction) -> str:
    """What is tried once on top of the same changes: which implementation or configuration it is
    was found out on the way, and is no part of it."""
    if action.kind in (StepActionKind.PRODUCT, StepActionKind.TRITON_CONFIG):
        action = replace(action, candidate=None, config={})
    if action.kind is StepActionKind.COMPILE_REGION:
        action = replace(action, settings={k: v for k, v in action.settings.items() if k != "mode"})
    return "\n".join([*map(key_of, accepted), "+", key_of(action)])
