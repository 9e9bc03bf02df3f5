"""The judge as the loop calls it in a worker: when building is over, and what is held, told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_compass.api.judging import TRUSTED, machine_of
from kernel_compass.api.problems import judged as problem_judged
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.validation import judge
from kernel_compass.validation.judging import Effort, JudgedProblem, Judgement, Runner, Tensors
from kernel_compass.validation.watch import Watch


@dataclass(frozen=True)
class Judged:
    """What the judge says, and what the candidate holds."""

    judgement: Judgement
    added_bytes: int | None
    """Memory held beside the original weight; `None` = it does not say."""


class Telling:
    """A candidate that tells when its first call has returned: it builds no more, it runs."""

    def __init__(self, inner: Runner, on_run: Callable[[], None]) -> None:
        self._inner, self._on_run = inner, on_run
        self.added_bytes: int | None = None

    def prepare(self, held: Tensors) -> Any:
        """As the candidate does, and note what that holds."""
        state = self._inner.prepare(held)
        self.added_bytes = getattr(state, "added_bytes", None)
        return state

    def run(self, state: Any, given: Tensors) -> Any:
        """One call."""
        found = self._inner.run(state, given)
        self._on_run()
        return found


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
    torch = torch_library()
    machine = machine_of(device)  # what opening a GPU changes is no candidate's doing
    watch = Watch(torch, TRUSTED)  # before any code of the problem runs
    problem, build, is_baseline = problem_judged(
        torch, source, workload, candidate, device, budget_pct
    )
    if not elsewhere:
        problem = OwnSizes(problem)
    runners: list[Telling] = []
    waiting = [on_run]

    def told() -> None:
        if waiting:
            waiting.pop()()

    def telling() -> Telling:
        runners.append(Telling(build(), told))
        return runners[-1]

    found = judge.judge(
        torch,
        problem,
        workload,
        telling,
        machine,
        watch,
        effort,
        declared_baseline=is_baseline,
    )
    added = next((r.added_bytes for r in runners if r.added_bytes is not None), None)
    return Judged(found, added)
