"""A problem's candidates in a worker: how they are timed, and how they are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_compass.api.judging import TRUSTED, machine_of
from kernel_compass.api.product_problem import ImplementationRunner, ProductProblem
from kernel_compass.api.product_recipes import product_recipe
from kernel_compass.errors import UsageError
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Workload
from kernel_compass.validation import judge
from kernel_compass.validation.judging import Effort, Judgement, Tensors
from kernel_compass.validation.watch import Watch

PRODUCT_BASELINE = Candidate("cublas_bf16", {}, "bf16", "torch")


@dataclass(frozen=True)
class Judged:
    """What the judge says, and what the candidate holds."""

    judgement: Judgement
    added_bytes: int | None
    """Memory held beside the original weight."""


class RunTeller(ImplementationRunner):
    """Tells when its first call has returned: from then on it runs, and builds no more."""

    on_run: Callable[[], None] = staticmethod(lambda: None)
    added_bytes: int | None = None

    def prepare(self, held: Tensors) -> Any:
        """Pack the weight, and note what that holds."""
        state = super().prepare(held)
        self.added_bytes = state.added_bytes
        return state

    def run(self, state: Any, given: Tensors) -> Any:
        """One launch."""
        found = super().run(state, given)
        told, self.on_run = self.on_run, _nothing
        told()
        return found


def recipe(source: ProblemSource, workload: ProblemWorkload, candidate: Candidate | None) -> Recipe:
    """How any process builds a candidate's launch; `None` = the baseline's.

    Raises:
        UsageError: the workload is no product.
    """
    return product_recipe(_product(source, workload), candidate or PRODUCT_BASELINE)


def judged(
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    budget: float,
    device: str,
    effort: Effort,
    on_run: Callable[[], None],
) -> Judged:
    """Steps 1 to 3 of validation.

    Args:
        source: of the problem.
        workload: its sizes.
        candidate: what is judged.
        budget: largest relative error against full precision, 0.03 = 3 %.
        device: `cpu`, `cuda:0`.
        effort: how hard to look.
        on_run: called once when it runs.
    """
    torch, product = torch_library(), _product(source, workload)
    name, number_format = candidate.implementation, NumberFormat.parse(candidate.format or "bf16")
    problem = ProductProblem(product, number_format, name, budget, device)
    one = implementation(name)
    runners: list[RunTeller] = []

    def build() -> RunTeller:
        runner = RunTeller(one, product, number_format, candidate.config)
        if not runners:
            runner.on_run = on_run
        runners.append(runner)
        return runner

    found = judge.judge(
        torch,
        problem,
        workload,
        build,
        machine_of(device),
        Watch(torch, TRUSTED),
        effort,
        declared_baseline=one.provider == "torch",
    )
    added = next((r.added_bytes for r in runners if r.added_bytes is not None), None)
    return Judged(found, added)


def _nothing() -> None:
    return


def _product(source: ProblemSource, workload: ProblemWorkload) -> Workload:
    if workload.product is None:
        raise UsageError(f"{source.target} is no product.", "Name mla:MODEL, bmm:... or linear:...")
    return workload.product
