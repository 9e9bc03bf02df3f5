"""What came of one change, as a trial: kept for its speed, or taken back with a reason."""

from __future__ import annotations

from kernel_compass.records.comparison import Decision
from kernel_compass.records.step_action import StepProposal, StepTrial
from kernel_compass.records.step_loop import PROCESS_FAULTS, WRONG_RESULTS, StepTried
from kernel_compass.records.trial import Outcome, Reason
from kernel_compass.units import duration_text


def judged(number: int, proposal: StepProposal, found: StepTried) -> StepTrial:
    """Kept only where the whole step is faster and nothing is against it."""
    if found.reason is not None:
        return ended(number, proposal, found.reason, found.detail, found)
    if found.result is None:
        return ended(number, proposal, Reason.CANNOT_BE_TIMED, found.detail, found)
    if found.result.decision is not Decision.FASTER:
        detail = "; ".join(found.result.reasons) or str(found.result.decision)
        return ended(number, proposal, Reason.NOT_FASTER, detail, found)
    return StepTrial(
        number,
        proposal,
        Outcome.SCREENED,
        None,
        "; ".join([found.result.reasons[0], *found.notes]),
        found.result.speedup,
        found.before_us,
        found.after_us,
        found.outputs,
        found.added_bytes,
        found.inputs,
    )


def ended(
    number: int,
    proposal: StepProposal,
    reason: Reason,
    detail: str,
    found: StepTried | None = None,
) -> StepTrial:
    """A trial that is not kept."""
    outcome = Outcome.FAILED if reason in PROCESS_FAULTS else Outcome.REJECTED
    result = None if found is None else found.result
    return StepTrial(
        number,
        proposal,
        outcome,
        reason,
        detail,
        None if result is None else result.speedup,
        None if found is None else found.before_us,
        None if found is None else found.after_us,
        () if found is None else found.outputs,
        0 if found is None else found.added_bytes,
        1 if found is None else found.inputs,
    )


def is_refused(trial: StepTrial) -> bool:
    """Whether outputs were against it, and what errs less is left to try."""
    return trial.reason in WRONG_RESULTS and trial.proposal.finer > 0


def may_change(trial: StepTrial) -> bool:
    """Whether it may be worth another try once the step is another one: it was not shown to be no
    gain, only not shown to be one."""
    undecided = trial.reason is Reason.NOT_FASTER and trial.speedup is not None
    return undecided and trial.speedup is not None and trial.speedup.high > 1.0


def line_of(trial: StepTrial) -> str:
    """A trial in a line."""
    text = trial.proposal.action.text
    if trial.reason is not None:
        return f"{trial.number} {text}: {trial.reason}: {trial.detail}"
    s = trial.speedup
    assert s is not None, "kept for its speed"
    return f"{trial.number} {text}: kept, {s.estimate:.3f}x [{s.low:.3f}, {s.high:.3f}]"


def predicted_of(proposal: StepProposal) -> str:
    """What a change should bring, in words."""
    if proposal.saves_us is None:
        return "what it brings is not known beforehand"
    return f"should save {duration_text(proposal.saves_us)} of a step"
