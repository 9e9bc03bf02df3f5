"""Times that were taken once, for the loop to be run on without the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_compass.records.contracts import Config
from kernel_compass.records.environment import Environment
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Reason


@dataclass(frozen=True)
class RecordedCandidate:
    """A configuration with its times, or why it has none."""

    implementation: str
    format: str | None = None
    source: str = ""
    config: Config = field(default_factory=dict)
    times_us: Mapping[Regime, float] = field(default_factory=dict)
    reason: Reason | None = None
    """Why it was rejected or failed; `None` = it was right."""
    detail: str = ""
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None
    added_bytes: int | None = None
    estimates_us: Mapping[Regime, float] = field(default_factory=dict)
    """What was known before it was measured."""
    floors_us: Mapping[Regime, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedWorkload:
    """A workload with its baseline and all that was tried."""

    workload: ProblemWorkload
    baseline_us: Mapping[Regime, float]
    floors_us: Mapping[Regime, float] = field(default_factory=dict)
    bounds: Mapping[Regime, str] = field(default_factory=dict)
    candidates: tuple[RecordedCandidate, ...] = ()


@dataclass(frozen=True)
class LoopRecording:
    """All that the loop may ask of a machine."""

    target: str
    environment: Environment
    workloads: tuple[RecordedWorkload, ...]
    noise_pct: float = 0.5
    """Standard deviation of a pair's ratio when it is played back."""
    process_noise_pct: float = 0.2
    """... and of a process's mean."""
    method: str = ""
    """How the times were taken, in a sentence."""
