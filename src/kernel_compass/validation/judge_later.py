"""Step 3: it goes on being right, for a number of calls that it cannot know.

Counting calls, or waiting until the judge has gone, is beyond what any number of calls rules out:
what is accepted is held out in fresh processes.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.in_place import NEW_VALUES
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import NAN_BYTE, Draw, Rejected, Session
from kernel_compass.validation.outputs import all_same, overlap
from kernel_compass.validation.peeking import listening

MOST_GATED = 32
"""Results with other bits than before that are compared with the reference, and then fewer."""
LARGEST_RING = 16
"""Buffers that results are handed out from in turns, at most: that many calls after a result."""
ONE_CHANGE_IN = 8
"""Calls between two changes of the contents, on average."""


@dataclass(frozen=True)
class _Contents:
    """What operands hold for some calls, and the result that it had at first."""

    source: Draw
    """Its inputs are written into the operands."""
    judged: Draw
    """What came of that: operands that stay are those of another draw."""
    result: list[Any]


def stays_right(session: Session, runner: Runner) -> None:
    """Many calls more, with contents that change in place now and then; all results compared."""
    given, guards = guard_all(session.torch, session.draws[1].inputs, NAN_BYTE, shown=False)
    state = session.prepared(runner, given)
    contents = []
    for source in (session.draws[1], session.draws[-1]):
        session.changed_in_place(given, source, NEW_VALUES)
        result = [o.clone() for o in session.ran(runner, state, given)]
        contents.append(_Contents(source, session.of(session.workload, given), result))
    with listening(session.audit):
        _call_on(session, runner, state, given, contents)
        _keeps_out(session, runner, state, given, contents)
    session.looked()
    session.left_alone()
    session.intact(guards, NAN_BYTE)


def _call_on(
    session: Session, runner: Runner, state: Any, given: dict[str, Any], contents: list[_Contents]
) -> None:
    least = session.effort.later // 4
    count = least + secrets.randbelow(session.effort.later - least + 1)
    deadline, gated, now = time.monotonic() + session.effort.repeat_s, 0, contents[-1]
    for number in range(1, count + 1):
        if secrets.randbelow(ONE_CHANGE_IN) == 0:
            now = secrets.choice(contents)
            session.changed_in_place(given, now.source, NEW_VALUES)
        outputs = session.once_more(runner, state, given)
        if not all_same(session.torch, outputs, now.result):
            gated += 1
            if secrets.randbelow(gated) < MOST_GATED:
                _check(session, outputs, now, contents, number)
        if time.monotonic() > deadline:
            return


def _keeps_out(
    session: Session, runner: Runner, state: Any, given: dict[str, Any], contents: list[_Contents]
) -> None:
    """Whether a result stays the caller's, while other contents are computed."""
    first, other = contents[0], contents[-1]
    session.changed_in_place(given, first.source, NEW_VALUES)
    operands = [v for v in given.values() if isinstance(v, session.torch.Tensor)]
    made = session.once_more(runner, state, given)
    held = [o for o in made if not any(overlap(o, one) for one in operands)]  # no view, if allowed
    copies = [o.clone() for o in held]
    session.changed_in_place(given, other.source, NEW_VALUES)
    deadline = time.monotonic() + session.effort.repeat_s
    for _ in range(LARGEST_RING):
        session.once_more(runner, state, given)
        if time.monotonic() > deadline:
            break
    if not all_same(session.torch, held, copies):
        raise Rejected(
            Reason.STALE_RESULT,
            "A later call overwrote the result of an earlier one: it hands out a few buffers in "
            "turns.",
        )


def _check(
    session: Session, outputs: list[Any], now: _Contents, contents: list[_Contents], number: int
) -> None:
    finding = now.judged.gate(outputs)
    if finding.reason is None:
        return
    if any(all_same(session.torch, outputs, o.result) for o in contents if o is not now):
        raise Rejected(
            Reason.STALE_RESULT,
            f"Right at first; {number} calls later, the result of other contents: {finding.detail}",
        )
    raise Rejected(
        Reason.NOT_REPEATABLE, f"Right at first, wrong {number} calls later: {finding.detail}"
    )
