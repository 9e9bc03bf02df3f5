"""Why a result is wrong, where one of the known ways explains it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.judge_builds import PUBLIC_SEED
from kernel_compass.validation.judged_trial import NAN_BYTE, ZERO_BYTE, Draw, Rejected, Trial
from kernel_compass.validation.judging import GateFinding, Runner
from kernel_compass.validation.outputs import all_same

SEEDS_TO_BE_SURE = 6
"""More draws before a candidate is said to know the public one."""


def reject_wrong(
    trial: Trial,
    runner: Runner,
    index: int,
    at_first: Mapping[str, Any],
    outputs: list[Any],
    finding: GateFinding,
) -> NoReturn:
    """Reject a wrong result by its name.

    Args:
        trial: what the steps share.
        runner: the candidate.
        index: of the draw that it is wrong for.
        at_first: the operands it was called with.
        outputs: as they were when the call returned.
        finding: the gate's.
    """
    draw = trial.draws[index]
    if any(earlier.gate(outputs).reason is None for earlier in trial.draws[:index]):
        raise Rejected(
            Reason.STALE_RESULT, "With new inputs it returned the result of earlier ones."
        )
    if _is_right(trial, runner, draw, ZERO_BYTE):
        reason, said = _of_a_second_call(trial, runner, draw, at_first)
        raise Rejected(reason, f"{said}: {finding.detail}")
    reason, detail = finding.reason or Reason.WRONG_RESULT, finding.detail
    if reason in (Reason.NOT_FINITE, Reason.WRONG_RESULT) and trial.leaves_gaps(runner, draw):
        reason = Reason.PARTIAL_RESULT
        detail = f"Part of the output was never written: {detail}"
    elif index > 0 and reason is Reason.WRONG_RESULT and _only_public(trial, runner):
        reason = Reason.KNOWS_THE_SEED
        detail = f"Right for the public seed {PUBLIC_SEED} alone: {detail}"
    elif reason is Reason.WRONG_RESULT and _is_input(trial, draw, outputs):
        detail = f"It returned one of its inputs: {detail}"
    trial.keep_worst(finding)
    raise Rejected(reason, detail)


def _of_a_second_call(
    trial: Trial, runner: Runner, draw: Draw, at_first: Mapping[str, Any]
) -> tuple[Reason, str]:
    """Wrong with NaN beside its operands, and right with copies of them among zeros: why."""
    if _is_right(trial, runner, draw, NAN_BYTE):
        there = [draw.gate(trial.called(runner, at_first)).reason for _ in range(3)]
        if None in there:
            return Reason.NOT_REPEATABLE, "Wrong once and right the next"
        return (
            Reason.CACHES_BY_IDENTITY,
            "Right for copies of its operands, wrong at addresses that held others before",
        )
    if trial.leaves_gaps(runner, draw):
        return Reason.PARTIAL_RESULT, "Part of the output was never written"
    return Reason.READS_OUTSIDE, "Right with zeros beside its operands, wrong with NaN there"


def _is_right(trial: Trial, runner: Runner, draw: Draw, byte: int) -> bool:
    """With fresh copies of its operands, among these bytes."""
    given, _ = guard_all(trial.torch, draw.inputs, byte)
    return draw.gate(trial.called(runner, given)).reason is None


def _only_public(trial: Trial, runner: Runner) -> bool:
    """Right for the public seed, and wrong for every other of many."""
    seeds = [secrets.randbits(30) + 1 for _ in range(SEEDS_TO_BE_SURE)]
    others = [trial.drawn(trial.workload, seed) for seed in seeds]
    rights = [_is_right(trial, runner, draw, NAN_BYTE) for draw in (*trial.draws, *others)]
    return rights[0] and not any(rights[1:]) and _right_in_place(trial, runner, others)


def _right_in_place(trial: Trial, runner: Runner, others: Sequence[Draw]) -> bool:
    """Whether the public seed's result is right wherever another's operands were just used.

    Who keeps results by address or by object looks, with luck, as if it knew the seed: where an
    address last held the public operands, or none before. All places are held together, so that
    one at least is new to it.
    """
    public = trial.draws[0]
    places = [guard_all(trial.torch, other.inputs, NAN_BYTE)[0] for other in others]
    for given in places:
        trial.called(runner, given)
        for name, value in given.items():
            if isinstance(value, trial.torch.Tensor):
                value.copy_(public.inputs[name])
        if public.gate(trial.called(runner, given)).reason is not None:
            return False
    return True


def _is_input(trial: Trial, draw: Draw, outputs: list[Any]) -> bool:
    tensors = [v for v in draw.inputs.values() if isinstance(v, trial.torch.Tensor)]
    return any(all_same(trial.torch, [one], [o]) for one in tensors for o in outputs)
