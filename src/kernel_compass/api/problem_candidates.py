"""Candidates of a problem as the judge meets them; a problem's file is run in here: in a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernel_compass.api.candidate_names import MODEL_NEW, check_named
from kernel_compass.api.problem_files import (
    FileProblem,
    FunctionCandidate,
    load_problem,
    run_file,
)
from kernel_compass.api.problem_models import ModelCandidate, is_model_file
from kernel_compass.api.problem_whole import CompiledBaseline
from kernel_compass.api.product_problem import ImplementationRunner, ProductProblem
from kernel_compass.api.targets import target_named
from kernel_compass.errors import UsageError, shortened
from kernel_compass.kernels.providers import registry
from kernel_compass.records.baseline_survey import COMPILED
from kernel_compass.records.contracts import Implementation
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ERROR_BUDGET_PCT, ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Workload
from kernel_compass.validation.judge_contracts import JudgedProblem, Runner

__all__ = [
    "BASELINE_FORMAT",
    "MODEL_NEW",
    "BaselineRunner",
    "Judged",
    "file_runner",
    "is_candidate_file",
    "judged",
    "load_source",
]

BASELINE_FORMAT = "bf16"

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
        UsageError: the problem's file is none, or nothing is called as the candidate is, or it
            takes no such configuration.
    """
    if source.sha256 is None:
        return _of_product(workload, candidate, device, budget_pct)
    loaded = load_source(torch, source, device)
    check_named(loaded, candidate, _own_file(loaded, candidate))
    is_baseline = candidate.implementation == COMPILED and not _own_file(loaded, candidate)
    return (
        loaded.problem,
        lambda: file_runner(torch, loaded, candidate, device, sha256),
        is_baseline,
    )


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
    path, name = _own_file(loaded, candidate), candidate.implementation
    module = loaded.module if path is None else run_file(path, sha256)[0]
    if is_model_file(loaded.module):
        return ModelCandidate(torch, loaded.module, module, device)
    if path is None and name == COMPILED:
        return CompiledBaseline(torch, loaded.module.baseline, candidate.config)
    if path is None and (name in loaded.candidates or not is_candidate_file(candidate)):
        return loaded.build(name, candidate.config)
    function = getattr(module, name, None)
    if not callable(function):
        place = Path(str(module.__file__)).name
        raise UsageError(
            f"{place} has no function {name!r}.",
            f"Name it as {place}:FUNCTION; it takes the problem's inputs by name.",
        )
    return FunctionCandidate(function, candidate.config)


def _own_file(loaded: FileProblem, candidate: Candidate) -> Path | None:
    """Where a candidate is, unless in the problem's own file."""
    own = str(loaded.module.__file__)
    is_beside = is_candidate_file(candidate) and candidate.source != own
    return Path(candidate.source) if is_beside else None


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
    _check_config(implementation, product, number_format, candidate, device)
    budget = (ERROR_BUDGET_PCT if budget_pct is None else budget_pct) / 100.0
    problem = ProductProblem(product, number_format, implementation.name, budget, device)

    def build() -> Runner:
        return ImplementationRunner(implementation, product, number_format, candidate.config)

    return problem, build, implementation.provider == "torch"


def _check_config(
    implementation: Implementation,
    product: Workload,
    number_format: NumberFormat,
    candidate: Candidate,
    device: str,
) -> None:
    """That its configuration is of names that the implementation knows."""
    if not candidate.config:
        return
    space = implementation.space(product, number_format, target_named(device))
    names = {name for config in space for name in config}
    for name in candidate.config:
        if name not in names:
            found = f"{implementation.name} has no {shortened(name)!r} in its configurations."
            raise UsageError(found, f"They have {', '.join(sorted(names)) or 'nothing'}.")
