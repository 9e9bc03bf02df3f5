"""What was rejected before, so that no run tries it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate, Reason


@dataclass(frozen=True)
class Idea:
    """A candidate where it would be tried; another GPU, version or source is another idea.

    So is another demand: what one budget or minimum effect rejects, another may take.
    """

    candidate: Candidate
    workload: str
    gpu: GpuModel
    regimes: tuple[Regime, ...]
    """Those in which it must win; their order does not matter."""
    versions: Mapping[str, str | None]
    """Of torch, triton, the driver, this package and the candidate's library."""
    source_sha256: str | None = None
    """Of the candidate's files, and of the problem's file where it is one."""
    error_budget_pct: float | None = None
    """The largest error that it may have; `None` = from before this was kept."""
    minimum_effect: float | None = None
    """The least speedup that counts; `None` likewise."""


@dataclass(frozen=True)
class RejectedIdea:
    """An idea that did not pass."""

    idea: Idea
    reason: Reason
    detail: str
    study: str
    trial: int
    at: str
    """ISO 8601, UTC."""
