"""Step 3: it is no baseline under another name, and leaves nothing at work."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from kernel_compass.records.device import CPU
from kernel_compass.records.trial import Reason
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import Rejected, Session
from kernel_compass.validation.op_record import executes
from kernel_compass.validation.value_chain import Made, made_of


def is_new(session: Session, runner: Runner) -> None:
    """It does not call the baseline, nor make its outputs by the baseline's own operations."""
    draw, problem = session.draws[1], session.problem
    given, outputs = dict(draw.inputs), []
    state = session.prepared(runner, given)

    def call() -> None:
        outputs.append(runner.run(state, session.rest(given)))

    used = executes(problem.functions, call)
    if used:
        raise _in_disguise(session, f"It calls the problem's {used}.")

    theirs, ours = _made(session, runner, given, outputs)
    if theirs is None or ours is None:
        session.unseen.append("the operations it calls could not be followed")
    elif _is_copy(theirs, ours) and (
        theirs.count == ours.count or _copies_elsewhere(session, runner)
    ):
        names = ", ".join(ours.last[:4])
        raise _in_disguise(
            session,
            f"Its outputs are made as the baseline's are, down to {names}: the same operations on "
            "the same operands, and beside them nothing that changes a value.",
        )
    for one in outputs:
        session.still_right(draw, one)


def _in_disguise(session: Session, found: str) -> Rejected:
    if session.machine.kind == CPU:
        found += (
            " A CPU judged: on another device the same candidate may call other kernels, so this "
            "says nothing of a GPU; judge it there with --device cuda:0."
        )
    return Rejected(Reason.BASELINE_IN_DISGUISE, found)


def _made(
    session: Session, runner: Runner, given: Mapping[str, Any], outputs: list[Any]
) -> tuple[Made | None, Made | None]:
    """What the baseline's outputs and the candidate's are made of."""

    def whole_call() -> Any:  # operands that stay may be copied when they are taken over
        outputs.append(runner.run(session.prepared(runner, given), session.rest(given)))
        return outputs[-1]

    theirs = made_of(session.torch, given, lambda: session.problem.baseline(given))
    return theirs, made_of(session.torch, given, whole_call, theirs)


def _is_copy(theirs: Made, ours: Made) -> bool:
    return bool(theirs.last) and ours.outputs == theirs.outputs


def _copies_elsewhere(session: Session, runner: Runner) -> bool:
    """Whether it is a copy at other sizes, too: who splits what is large may have one part here."""
    for variant in session.problem.variants(session.workload):
        given = session.problem.inputs(variant, secrets.randbits(30) + 1)
        theirs, ours = _made(session, runner, given, [])
        if theirs is not None and ours is not None and theirs.last and not _is_copy(theirs, ours):
            return False
    return True


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
