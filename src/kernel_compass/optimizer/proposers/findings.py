"""What diagnoses say of the kernels that the rules start from."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_compass.records.baseline_survey import BaselineSurvey


@dataclass(frozen=True)
class Finding:
    """What a diagnosis says of a workload's kernel."""

    limiter: str
    flags: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    family: str | None = None
    """Which space the kernel is of; `None` = it holds for any."""

    @property
    def text(self) -> str:
        """`latency_bound, low_occupancy (few warps ...)`."""
        words = ", ".join((self.limiter, *self.flags))
        return f"{words} ({self.evidence[0]})" if self.evidence else words


@dataclass
class Findings:
    """By workload; filled while the loop runs."""

    best: dict[str, Finding] = field(default_factory=dict)
    """Of a candidate that was the best so far."""
    baseline: dict[str, Finding] = field(default_factory=dict)
    surveys: dict[str, BaselineSurvey] = field(default_factory=dict)
    """What baselines consist of, before anything is tried."""
