"""The judge as the loop calls it in a worker: with the budget and the sizes that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernel_compass.api.judging import Judged, bench
from kernel_compass.api.problems import judged as problem_judged
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.validation.judge_contracts import Effort, JudgedProblem


class OwnSizes:
    """A problem that is looked at in its own sizes alone."""

    def __init__(self, inner: JudgedProblem) -> None:
        self._inner = inner

    def variants(self, workload: ProblemWorkload) -> Sequence[ProblemWorkload]:
        """None."""
        del workload
        return ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def judged(
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    budget_pct: float,
    device: str,
    effort: Effort,
    on_run: Callable[[], None],
    elsewhere: bool = True,
) -> Judged:
    """Steps 1 to 3 of validation.

    Args:
        source: of the problem.
        workload: its sizes.
        candidate: what is judged.
        budget_pct: largest relative error against full precision.
        device: `cpu`, `cuda:0`.
        effort: how hard to look.
        on_run: called once, when it has run.
        elsewhere: whether it must be right at other sizes too: each of them may have to be
            compiled.
    """
    at = bench(device)
    problem, build, is_baseline = problem_judged(
        at.torch, source, workload, candidate, device, budget_pct
    )
    if not elsewhere:
        problem = OwnSizes(problem)
    return at.judged(problem, workload, build, on_run, effort, is_baseline)
