"""A space of configurations with all its times: what search is tried on without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import sqrt

from kernel_compass.records.contracts import Config
from kernel_compass.records.environment import Environment
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload


class PointFailure(StrEnum):
    """Why a point has no times."""

    COMPILE = "compile"
    LAUNCH = "launch"
    WRONG = "wrong"
    """Outside the gate against float64."""


@dataclass(frozen=True)
class RecordedPoint:
    """One configuration: both times, or why there are none."""

    config: Config
    warm_us: float | None = None
    cold_us: float | None = None
    failure: PointFailure | None = None
    detail: str | None = None
    """Of the failure."""
    error: float | None = None
    """Relative Frobenius, against float64 on the same operands."""
    static: Mapping[str, float] = field(default_factory=dict)
    """Of a static compilation: `registers`, `shared_bytes`, `spills`, `hgmma`, ..."""

    def time_us(self, regime: Regime | None) -> float | None:
        """Its time; of no regime in particular, the geometric mean of both."""
        if self.warm_us is None or self.cold_us is None:
            return None
        if regime is None:
            return sqrt(self.warm_us * self.cold_us)
        times: dict[Regime, float] = {Regime.WARM: self.warm_us, Regime.COLD: self.cold_us}
        return times[regime]


@dataclass(frozen=True)
class RecordedSpace:
    """All points of an implementation's space for one workload on one machine."""

    workload: Workload
    format: NumberFormat
    implementation: str
    environment: Environment
    points: tuple[RecordedPoint, ...]
    method: str
    """How the times were taken, in a sentence."""
    total: int
    """Points of the space; more than are here while a recording goes on."""

    @property
    def complete(self) -> bool:
        """Whether every point was tried."""
        return len(self.points) == self.total
