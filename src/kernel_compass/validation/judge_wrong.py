"""Why a result is wrong, where one of the known ways explains it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.judge_builds import PUBLIC_SEED
from kernel_compass.validation.judge_contracts import GateFinding, Runner
from kernel_compass.validation.judge_session import NAN_BYTE, ZERO_BYTE, Draw, Rejected, Session
from kernel_compass.validation.outputs import all_same

SEEDS_TO_BE_SURE = 6
"""More draws before a candidate is said to know the public one."""


def reject_wrong(
    session: Session,
    runner: Runner,
    index: int,
    at_first: Mapping[str, Any],
    outputs: list[Any],
    finding: GateFinding,
) -> NoReturn:
    """Reject a wrong result by its name.

    Args:
        session: what the steps share.
        runner: the candidate.
        index: of the draw that it is wrong for.
        at_first: the operands it was called with.
        outputs: as they were when the call returned.
        finding: the gate's.
    """
    draw = session.draws[index]
    if any(earlier.gate(outputs).reason is None for earlier in session.draws[:index]):
        raise Rejected(
            Reason.STALE_RESULT, "With new inputs it returned the result of earlier ones."
        )
    if _is_right(session, runner, draw, ZERO_BYTE):
        reason, said = _of_a_second_call(session, runner, draw, at_first)
        raise Rejected(reason, f"{said}: {finding.detail}")
    reason, detail = finding.reason or Reason.WRONG_RESULT, finding.detail
    if reason in (Reason.NOT_FINITE, Reason.WRONG_RESULT) and session.leaves_gaps(runner, draw):
        reason = Reason.PARTIAL_RESULT
        detail = f"Part of the output was never written: {detail}"
    elif index > 0 and reason is Reason.WRONG_RESULT and _only_public(session, runner):
        reason = Reason.KNOWS_THE_SEED
        detail = f"Right for the public seed {PUBLIC_SEED} alone: {detail}"
    elif reason is Reason.WRONG_RESULT and _is_input(session, draw, outputs):
        detail = f"It returned one of its inputs: {detail}"
    session.keep_worst(finding)
    raise Rejected(reason, detail)


def _of_a_second_call(
    session: Session, runner: Runner, draw: Draw, at_first: Mapping[str, Any]
) -> tuple[Reason, str]:
    """Wrong with NaN beside its operands, and right with copies of them among zeros: why."""
    if _is_right(session, runner, draw, NAN_BYTE):
        there = [draw.gate(session.called(runner, at_first)).reason for _ in range(3)]
        if None in there:
            return Reason.NOT_REPEATABLE, "Wrong once and right the next"
        return (
            Reason.CACHES_BY_IDENTITY,
            "Right for copies of its operands, wrong at addresses that held others before",
        )
    if session.leaves_gaps(runner, draw):
        return Reason.PARTIAL_RESULT, "Part of the output was never written"
    return Reason.READS_OUTSIDE, "Right with zeros beside its operands, wrong with NaN there"


def _is_right(session: Session, runner: Runner, draw: Draw, byte: int) -> bool:
    """With fresh copies of its operands, among these bytes."""
    given, _ = guard_all(session.torch, draw.inputs, byte)
    return draw.gate(session.called(runner, given)).reason is None


def _only_public(session: Session, runner: Runner) -> bool:
    """Right for the public seed, and wrong for every other of many."""
    seeds = [secrets.randbits(30) + 1 for _ in range(SEEDS_TO_BE_SURE)]
    others = [session.drawn(session.workload, seed) for seed in seeds]
    rights = [_is_right(session, runner, draw, NAN_BYTE) for draw in (*session.draws, *others)]
    return rights[0] and not any(rights[1:]) and _right_in_place(session, runner, others)


def _right_in_place(session: Session, runner: Runner, others: Sequence[Draw]) -> bool:
    """Whether the public seed's result is right wherever another's operands were just used.

    Who keeps results by address or by object looks, with luck, as if it knew the seed: where an
    address last held the public operands, or none before. All places are held together, so that
    one at least is new to it.
    """
    public = session.draws[0]
    places = [guard_all(session.torch, other.inputs, NAN_BYTE)[0] for other in others]
    for given in places:
        session.called(runner, given)
        for name, value in given.items():
            if isinstance(value, session.torch.Tensor):
                value.copy_(public.inputs[name])
        if public.gate(session.called(runner, given)).reason is not None:
            return False
    return True


def _is_input(session: Session, draw: Draw, outputs: list[Any]) -> bool:
    tensors = [v for v in draw.inputs.values() if isinstance(v, session.torch.Tensor)]
    return any(all_same(session.torch, [one], [o]) for one in tensors for o in outputs)
