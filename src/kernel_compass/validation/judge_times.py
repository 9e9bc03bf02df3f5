"""Step 3: contents that it has seen before take as long as new ones, unwatched.

Who remembers results only while nothing profiles, traces or intercepts its operations is seen by
the clock alone: what it saves is time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import guard_all
from kernel_compass.validation.in_place import silently
from kernel_compass.validation.judge_contracts import Runner
from kernel_compass.validation.judge_session import NAN_BYTE, Rejected, Session

ROUNDS = 3
"""Each has to say so: a machine that is busy for a while decides nothing."""
FEWEST, MOST = 4, 8
"""Pairs of calls in a round; of each kind the shortest counts."""
LARGEST_SHARE = 0.4
"""Branches that were taken before are foreseen: a small sort takes half the time."""
LEAST_S = 40e-6


def takes_as_long_again(session: Session, runner: Runner) -> None:
    """A second call with the same new contents is no way shorter than the first."""
    given, _ = guard_all(session.torch, session.draws[1].inputs, NAN_BYTE, shown=False)
    state = session.prepared(runner, given)
    session.once_more(runner, state, given)
    shares = []
    for _ in range(ROUNDS):
        pair = _shortest(session, runner, state, given)
        if pair is None or pair[0] - pair[1] < LEAST_S or pair[1] > LARGEST_SHARE * pair[0]:
            return
        shares.append(pair[1] / pair[0])
    raise Rejected(
        Reason.NO_WORK,
        f"With contents it has seen before it takes {max(shares):.0%} of the time at most: it "
        "keeps results.",
    )


def _shortest(
    session: Session, runner: Runner, state: Any, given: Mapping[str, Any]
) -> tuple[float, float] | None:
    """Seconds of a call with new contents, and of one with those that are there."""
    new: list[float] = []
    again: list[float] = []
    deadline = time.monotonic() + session.effort.repeat_s
    while len(new) < MOST and (len(new) < FEWEST or time.monotonic() < deadline):
        first, second = (secrets.randbits(30) + 1 for _ in "ab")
        for seed, times in ((first, []), (second, new), (second, again)):
            _write(session, given, seed)  # the same before each: caches, threads that fell asleep
            times.append(_timed(session, runner, state, given))
        if time.monotonic() > deadline and len(new) < FEWEST and new[0] > session.effort.repeat_s:
            return None
    return min(new), min(again)


def _write(session: Session, given: Mapping[str, Any], seed: int) -> None:
    """Contents of a seed into the operands that come with each call."""
    drawn = session.problem.inputs(session.workload, seed)
    for name, value in session.rest(given).items():
        if isinstance(value, session.torch.Tensor) and drawn[name].shape == value.shape:
            silently(session.torch, value, drawn[name])


def _timed(session: Session, runner: Runner, state: Any, given: Mapping[str, Any]) -> float:
    session.machine.synchronize()
    begin = time.perf_counter()
    session.once_more(runner, state, given)
    return time.perf_counter() - begin
