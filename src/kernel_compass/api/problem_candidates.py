"""Candidates of a problem as the judge meets them; a problem's file is run in here: in a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernel_compass.api.problem_files import (
    FileProblem,
    FunctionCandidate,
    load_problem,
    run_file,
)
from kernel_compass.api.problem_models import ModelCandidate, is_model_file
from kernel_compass.api.product_problem import ImplementationRunner, ProductProblem
from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers import registry
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ERROR_BUDGET_PCT, ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.validation.judge_contracts import JudgedProblem, Runner

BASELINE_FORMAT = "bf16"
MODEL_NEW = "ModelNew"
"""What a candidate's class is called in a file of its own."""

Judged = tuple[JudgedProblem, Callable[[], Runner], bool]


def judged(
    torch: Any,
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    device: str,
    budget_pct: float | None = None,
    sha256: str | None = None,
) -> Judged:
    """The problem, what builds the candidate, and whether that is the library of the baseline.

    Take the judge's `Watch` before: a file's code runs in here.

    Args:
        torch: the module.
        source: which problem.
        workload: its sizes.
        candidate: an implementation by name, a name in the problem's file, or, where its `source`
            is a Python file, a function or `ModelNew` in there.
        device: `cpu`, `cuda:0`.
        budget_pct: largest relative error against full precision; `None` = the problem's own.
        sha256: of the candidate's file that was agreed to.

    Raises:
        UsageError: the problem's file is none.
    """
    if source.sha256 is None:
        return _of_product(workload, candidate, device, budget_pct)
    loaded = load_source(torch, source, device)
    return loaded.problem, lambda: file_runner(torch, loaded, candidate, device, sha256), False


def load_source(torch: Any, source: ProblemSource, device: str) -> FileProblem:
    """Run a problem's file, the one that was agreed to.

    Raises:
        UsageError: it is another file, or no problem.
    """
    return load_problem(torch, Path(source.target), device, source.sha256)


def file_runner(
    torch: Any, loaded: FileProblem, candidate: Candidate, device: str, sha256: str | None = None
) -> Runner:
    """A candidate for a problem of a file.

    Raises:
        UsageError: there is none of this name.
    """
    if not is_candidate_file(candidate):
        return loaded.build(candidate.implementation, candidate.config)
    path = Path(candidate.source)
    module, _ = run_file(path, sha256)
    if is_model_file(loaded.module):
        return ModelCandidate(torch, loaded.module, module, device)
    function = getattr(module, candidate.implementation, None)
    if not callable(function):
        raise UsageError(
            f"{path.name} has no function {candidate.implementation!r}.",
            f"Name it as {path.name}:FUNCTION; it takes the problem's inputs by name.",
        )
    return FunctionCandidate(function, candidate.config)


def is_candidate_file(candidate: Candidate) -> bool:
    """Whether a candidate is in a file of its own."""
    return candidate.source.endswith(".py")


class BaselineRunner:
    """A problem's own baseline, as if it were a candidate."""

    def __init__(self, problem: Any) -> None:
        self._problem = problem

    def prepare(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Operands that stay are passed on as they are."""
        return dict(held)

    def run(self, state: dict[str, Any], given: Mapping[str, Any]) -> Any:
        """Call it with all operands by name."""
        return self._problem.baseline({**state, **given})


def _of_product(
    workload: ProblemWorkload, candidate: Candidate, device: str, budget_pct: float | None
) -> Judged:
    product = workload.product
    if product is None:
        raise UsageError(f"{workload.name} is no product.", "Name its workload with its op.")
    number_format = NumberFormat.parse(candidate.format or BASELINE_FORMAT)
    implementation = registry.implementation(candidate.implementation)
    budget = (ERROR_BUDGET_PCT if budget_pct is None else budget_pct) / 100.0
    problem = ProductProblem(product, number_format, implementation.name, budget, device)

    def build() -> Runner:
        return ImplementationRunner(implementation, product, number_format, candidate.config)

    return problem, build, implementation.provider == "torch"
