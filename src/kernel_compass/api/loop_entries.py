"""What a trial is outside of its study: a rule for run time, and an idea that is remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kernel_compass import __version__
from kernel_compass.api.dispatch_sources import source_hashes
from kernel_compass.api.loop_place import Place
from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers.registry import all_providers, implementation
from kernel_compass.optimizer.ledger import trial_sha256
from kernel_compass.records.dispatch import (
    DispatchEntry,
    GpuModel,
    RegimeWin,
    WorkloadPattern,
    token_ranges,
)
from kernel_compass.records.environment import Environment
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.rejected import Idea
from kernel_compass.records.study import StudyRequest
from kernel_compass.records.trial import Candidate, Trial
from kernel_compass.records.workload import Op


def entry_of(
    study: str,
    regimes: Sequence[Regime],
    workload: ProblemWorkload,
    trial: Trial,
    environment: Environment,
) -> DispatchEntry | None:
    """An accepted trial as a rule for run time; `None` where the workload is no product."""
    product = workload.product
    if product is None:
        return None
    candidate, device = trial.proposal.candidate, environment.device
    return DispatchEntry(
        WorkloadPattern(
            product.op,
            1 if product.op is Op.LINEAR else product.heads,
            product.reduction,
            product.columns,
            token_ranges([product.tokens]),
        ),
        GpuModel(
            device.name or "unknown GPU",
            device.compute_capability or "0.0",
            device.sm_count or 1,
        ),
        tuple(RegimeWin(r.regime, r.speedup) for r in trial.results if r.regime in regimes),
        candidate,
        study,
        trial.number,
        trial_sha256(trial),
        trial.fidelity_error_pct,
        trial.format_error_pct,
        trial.added_bytes,
        _files(candidate),
    )


def idea_of(
    place: Place, request: StudyRequest, workload: ProblemWorkload, candidate: Candidate
) -> Idea:
    """What of a candidate decides whether it was rejected before."""
    e, device = place.environment, place.environment.device
    versions = {
        "driver": e.driver,
        "torch": e.torch,
        "triton": e.triton,
        "kernel_compass": __version__,
        "library": _library(candidate),
    }
    text = repr((request.source.sha256, sorted(_files(candidate).items())))
    budget = request.error_budget_pct
    return Idea(
        candidate,
        workload.name,
        GpuModel(device.name or "", device.compute_capability or "", device.sm_count or 0),
        request.regimes,
        versions,
        hashlib.sha256(text.encode()).hexdigest(),
        place.problem.error_budget_pct if budget is None else budget,
        LoopOptions.of(request).minimum_effect,
    )


def _library(candidate: Candidate) -> str | None:
    """The version of what it comes from; `None` = a file, or not installed."""
    for provider in all_providers():
        if any(one.name == candidate.implementation for one in provider.implementations()):
            return provider.version()
    return None


def _files(candidate: Candidate) -> dict[str, str]:
    try:
        return source_hashes(implementation(candidate.implementation))
    except UsageError:  # of a recording or a problem's file
        return {}
