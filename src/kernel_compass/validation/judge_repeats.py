"""Steps 2 and 3: the same inputs give the same result, whatever lies around them."""

from __future__ import annotations

import time

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import NAN_BYTE, ODD_BYTE, ZERO_BYTE, Rejected, Session
from kernel_compass.validation.outputs import all_same


def repeats(session: Session, runner: Runner) -> None:
    """The same inputs give the same result, call after call, in this process."""
    draw = session.draws[-1]
    given, guards = guard_all(session.torch, draw.inputs, NAN_BYTE, shown=False)
    state = session.prepared(runner, given)
    first = [o.clone() for o in session.ran(runner, state, given)]
    deadline, differs = time.monotonic() + session.effort.repeat_s, 0
    session.audit.handed_over.clear()  # compilers were among them
    for count in range(session.effort.repeats):
        outputs = session.ran(runner, state, given)
        if not all_same(session.torch, outputs, first):
            finding = draw.gate(outputs)
            if finding.reason is not None:
                detail = f"Call {count + 2} with the same inputs was wrong: {finding.detail}"
                raise Rejected(Reason.NOT_REPEATABLE, detail)
            differs += 1
        if time.monotonic() > deadline:
            break
    session.untouched(draw, given, guards)
    if session.audit.handed_over:
        raise Rejected(
            Reason.NO_WORK,
            f"Every call starts another process ({session.audit.handed_over[0]}): what is computed "
            "there takes no time here.",
        )
    if differs:
        session.unseen.append(
            f"{differs} calls differ in their last bits: sums are added in no fixed order"
        )


def keeps_inside(session: Session, runner: Runner) -> None:
    """What lies around operands makes no difference, and nothing is written there."""
    draw, results = session.draws[1], []
    for byte in (NAN_BYTE, ZERO_BYTE, ODD_BYTE):
        given, guards = guard_all(session.torch, draw.inputs, byte)
        results.append([o.clone() for o in session.called(runner, given)])
        session.intact(guards, byte)
    session.inside_its_own(runner, draw)
    session.touches_nothing(runner, draw)
    if session.leaves_gaps(runner, draw):
        raise Rejected(
            Reason.PARTIAL_RESULT,
            "Part of its output is what memory happened to hold: it is right where the memory was.",
        )
    for byte, other in zip((ZERO_BYTE, ODD_BYTE), results[1:], strict=True):
        wrong = draw.gate(other)
        if all_same(session.torch, results[0], other) or wrong.reason is None:
            continue
        given, _ = guard_all(session.torch, draw.inputs, byte)
        if draw.gate(session.called(runner, given)).reason is None:
            found = f"Wrong once and right the next, with the same inputs: {wrong.detail}"
            raise Rejected(Reason.NOT_REPEATABLE, found)
        raise Rejected(
            Reason.READS_OUTSIDE,
            f"Its result depends on what lies beside its operands: {wrong.detail}",
        )
