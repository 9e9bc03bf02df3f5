"""Is a candidate right, and does it do the work at every call: steps 1 to 3 of validation.

Everything happens in the candidate's own process. That stops accidents and lazy cheats; hostile
code in the same process can forge anything, so what is confirmed is confirmed in fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.validation.judge_builds import built, draw_inputs
from kernel_compass.validation.judge_contracts import (
    Effort,
    GateFinding,
    JudgedProblem,
    Judgement,
    Machine,
    Runner,
)
from kernel_compass.validation.judge_correct import right
from kernel_compass.validation.judge_elsewhere import right_elsewhere, right_with_other_data
from kernel_compass.validation.judge_follows import follows, works_at_every_call
from kernel_compass.validation.judge_honest import is_new, leaves_nothing
from kernel_compass.validation.judge_later import stays_right
from kernel_compass.validation.judge_repeats import keeps_inside, repeats
from kernel_compass.validation.judge_session import Rejected, Session
from kernel_compass.validation.judge_times import takes_as_long_again
from kernel_compass.validation.watch import Watch


def judge(
    torch: Any,
    problem: JudgedProblem,
    workload: ProblemWorkload,
    build: Callable[[], Runner],
    machine: Machine,
    watch: Watch,
    effort: Effort | None = None,
    declared_baseline: bool = False,
) -> Judgement:
    """Try a candidate on one workload.

    Args:
        torch: the module.
        problem: what is computed.
        workload: the sizes it is proposed for.
        build: makes the candidate; whatever its code does when it is loaded happens in there.
        machine: the device.
        watch: taken before any code of the candidate was loaded.
        effort: how hard to look.
        declared_baseline: it says itself that it is the library the baseline uses.

    Raises:
        NotTaken: it does not take the configuration that it was named with.
    """
    session = Session(torch, problem, workload, machine, watch, effort or Effort())
    try:
        draw_inputs(session)
        watch.also(problem=problem, machine=machine)
        _judge_built(session, built(session, build), declared_baseline)
    except Rejected as no:
        return _judgement(session, no.reason, no.detail)
    return _judgement(session, None, session.found.detail if session.found else "")


def _judge_built(session: Session, runner: Runner, declared_baseline: bool) -> None:
    """Steps 2 and 3, in the order in which the telling reason comes first."""
    right(session, runner)
    follows(session, runner)
    repeats(session, runner)
    works_at_every_call(session, runner)
    keeps_inside(session, runner)
    right_elsewhere(session, runner)
    right_with_other_data(session, runner)
    takes_as_long_again(session, runner)
    if not declared_baseline:
        is_new(session, runner)
    leaves_nothing(session, runner)
    stays_right(session, runner)  # last: what is left running would pile up


def _judgement(session: Session, reason: Reason | None, detail: str) -> Judgement:
    worst = session.found or GateFinding(None, "")
    return Judgement(
        reason, detail, worst.fidelity_error_pct, worst.format_error_pct, tuple(session.unseen)
    )
