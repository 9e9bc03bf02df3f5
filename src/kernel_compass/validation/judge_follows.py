"""Step 3: results follow inputs that change in place, and every call does the work."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.in_place import NEW_VALUES, REORDERINGS, silently
from kernel_compass.validation.judge_contracts import GateFinding, Runner
from kernel_compass.validation.judge_session import NAN_BYTE, Rejected, Session
from kernel_compass.validation.op_record import is_operation, work_of
from kernel_compass.validation.outputs import all_same

ROUNDS = 2


def follows(session: Session, runner: Runner) -> None:
    """Results follow inputs that are changed in place, under the same objects and addresses."""
    given, guards = guard_all(session.torch, session.draws[1].inputs, NAN_BYTE, shown=False)
    state = session.prepared(runner, given)
    before = [o.clone() for o in session.ran(runner, state, given)]
    for change in (NEW_VALUES, *REORDERINGS):
        if not session.changed_in_place(given, session.draws[-1], change):
            continue
        changed = session.of(session.workload, given)
        if changed.gate(before).reason is None:
            continue  # the change does not show in the result
        outputs = session.ran(runner, state, given)
        finding = changed.gate(outputs)
        is_stale = all_same(session.torch, outputs, before)
        before = [o.clone() for o in outputs]
        if finding.reason is not None:
            _reject_unless_unclear(finding, change, is_stale)
    session.intact(guards, NAN_BYTE)


def _reject_unless_unclear(finding: GateFinding, change: str, is_stale: bool) -> None:
    if is_stale:
        raise Rejected(
            Reason.CACHES_BY_IDENTITY,
            f"Its result did not follow inputs that were changed in place ({change}).",
        )
    if change == NEW_VALUES:  # the others may break what a problem's inputs keep to
        detail = f"After inputs were changed in place ({change}): {finding.detail}"
        raise Rejected(finding.reason or Reason.WRONG_RESULT, detail)


def works_at_every_call(session: Session, runner: Runner) -> None:
    """The same contents again cost the same operations, and late results follow new ones."""
    inputs = session.problem.inputs(session.workload, secrets.randbits(30) + 1)
    given, guards = guard_all(session.torch, inputs, NAN_BYTE, shown=False)
    state = session.prepared(runner, given)
    session.ran(runner, state, given)
    saved = [_saved(session, runner, state, given) for _ in range(ROUNDS)]
    session.intact(guards, NAN_BYTE)
    late = session.of(session.workload, given)
    finding = late.gate(session.ran(runner, state, given))
    if finding.reason is not None:
        kept = session.copies
        session.changed_in_place(given, session.draws[-1], NEW_VALUES)
        if all_same(session.torch, session.ran(runner, state, given), kept):
            detail = f"From some call on it gives one result again and again: {finding.detail}"
            raise Rejected(Reason.STALE_RESULT, detail)
        raise Rejected(finding.reason, finding.detail)
    if all(saved):
        what = ", ".join(sorted(str(one) for one in saved[0] or ())[:3])
        raise Rejected(
            Reason.NO_WORK,
            f"With contents it has seen before it leaves out {what}: it keeps results.",
        )


def _saved(
    session: Session, runner: Runner, state: Any, given: dict[str, Any]
) -> Counter[str] | None:
    """What a second call with the same new contents leaves out; `None` = nothing, or for no sake.

    Who does something else instead (compares, copies) has still left out what new contents need:
    two calls with new contents each go through it, so that taking turns is no memory.
    """
    first, again = (_work(session, runner, state, given, is_new) for is_new in (True, False))
    if again <= first:
        return first - again
    lost = Counter({name: n for name, n in (first - again).items() if is_operation(name)})
    if not lost:
        return None
    others = [_work(session, runner, state, given, True) for _ in "ab"]
    return lost if all(lost <= other for other in others) else None


def _work(
    session: Session, runner: Runner, state: Any, given: dict[str, Any], is_new: bool
) -> Counter[str]:
    """Of one call, with new contents in the same places or with those that are there."""
    rest = session.rest(given)
    if is_new:
        new = session.problem.inputs(session.workload, secrets.randbits(30) + 1)
        for name, value in rest.items():
            if isinstance(value, session.torch.Tensor) and new[name].shape == value.shape:
                silently(session.torch, value, new[name])
    return work_of(session.torch, lambda: runner.run(state, rest))
