"""Step 3: it is no baseline under another name, and leaves nothing at work."""

from __future__ import annotations

from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import Rejected, Session
from kernel_compass.validation.op_record import executes
from kernel_compass.validation.value_chain import made_of


def is_new(session: Session, runner: Runner) -> None:
    """It does not call the baseline, nor make its outputs by the baseline's own operations."""
    draw, problem = session.draws[1], session.problem
    given, outputs = dict(draw.inputs), []
    state = session.prepared(runner, given)

    def call() -> None:
        outputs.append(runner.run(state, session.rest(given)))

    used = executes(problem.functions, call)
    if used:
        raise Rejected(Reason.BASELINE_IN_DISGUISE, f"It calls the problem's {used}.")

    def whole_call() -> Any:  # operands that stay may be copied when they are taken over
        outputs.append(runner.run(session.prepared(runner, given), session.rest(given)))
        return outputs[-1]

    theirs = made_of(session.torch, given, lambda: problem.baseline(draw.inputs))
    ours = made_of(session.torch, given, whole_call, theirs)
    if theirs is None or ours is None:
        session.unseen.append("the operations it calls could not be followed")
    elif theirs.last and ours.outputs == theirs.outputs:
        names = ", ".join(ours.last[:4])
        raise Rejected(
            Reason.BASELINE_IN_DISGUISE,
            f"Its outputs are made as the baseline's are, down to {names}: the same operations on "
            "the same operands, and beside them nothing that changes a value.",
        )
    for one in outputs:
        session.still_right(draw, one)


def leaves_nothing(session: Session, runner: Runner) -> None:
    """No work on other streams, no threads, no processes."""
    draw, outputs = session.draws[-1], []
    given = dict(draw.inputs)
    state = session.prepared(runner, given)
    left = session.machine.leaves_side_streams(lambda: runner.run(state, session.rest(given)))
    if left:
        raise Rejected(
            Reason.SIDE_STREAM,
            "It leaves work on another stream when the current one is done.",
        )
    if left is None:
        session.unseen.append("work on side streams could not be looked for")
    session.left_alone()

    def call() -> None:
        outputs.append(session.ran(runner, state, given))

    found = session.watch.running() or session.watch.helped(call)
    if found:
        raise Rejected(found.reason, found.detail)
    call()
    session.still_right(draw, outputs[-1])
