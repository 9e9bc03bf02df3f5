"""What Stage 1 hands to Stage 2: one capture, its launches grouped into kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis

Dim3 = tuple[int, int, int]


class Regime(StrEnum):
    """Where the streamed operands are before the profiled launch."""

    COLD = "cold"
    WARM = "warm"
    IN_SITU = "in_situ"
    UNKNOWN = "unknown"


LEADING_ORDER = (Regime.WARM, Regime.IN_SITU, Regime.COLD, Regime.UNKNOWN)
"""Which regime the top level of a joined report repeats: the first of these that is there."""


class SourceFormat(StrEnum):
    """The form a capture came in."""

    NCU_CSV_LONG = "ncu-csv-long"
    NCU_CSV_WIDE = "ncu-csv-wide"
    NCU_REP = "ncu-rep"
    NCU_RUN = "ncu-run"
    KINETO_TRACE = "kineto-trace"
    KINETO_RUN = "kineto-run"


@dataclass(frozen=True)
class Source:
    """Where a capture came from and how it was taken; `None` = not stated by the file."""

    path: str | None
    format: SourceFormat
    regime: Regime = Regime.UNKNOWN
    cache_control: str | None = None
    """`all` (flushed before every pass), `none`, or unknown."""
    clock_control: str | None = None
    """`base`, `none`, or unknown."""
    replay_mode: str | None = None
    """`kernel`, `application`, ..., or unknown."""
    ncu_version: str | None = None


@dataclass(frozen=True)
class DurationStats:
    """GPU time of a kernel's launches in microseconds, as ncu measured it (no launch gaps)."""

    mean: float
    median: float
    min: float
    max: float
    total: float


@dataclass(frozen=True)
class RuleResult:
    """One result of ncu's own rules on a kernel, as written in the capture."""

    name: str
    """Rule identifier, e.g. `SOLBottleneck`."""
    kind: str
    """`OPT`, `INF`, `WRN`, ..."""
    text: str
    estimated_speedup_pct: float | None = None


@dataclass(frozen=True)
class KernelProfile:
    """Launches of one kernel with the same name, grid, block and device.

    `metrics` maps the keys of `records.metrics` to launch means (rates: ratios of sums);
    a key that the capture does not carry is absent, never 0.
    """

    name: str
    grid: Dim3 | None
    block: Dim3 | None
    device: int | None
    launches: int
    duration_stats: DurationStats | None
    metrics: Mapping[str, float]
    rules: tuple[RuleResult, ...] = ()
    diagnosis: Diagnosis | None = None

    @property
    def identity(self) -> tuple[str, Dim3 | None, Dim3 | None]:
        """What matches this kernel with itself in a capture of another regime."""
        return (self.name, self.grid, self.block)

    # The names that the project's first scripts used.

    @property
    def kernel_name(self) -> str:
        """The kernel's full name."""
        return self.name

    @property
    def sm_pct(self) -> float | None:
        """SM throughput, percent of peak."""
        return self.metrics.get("sm_throughput_pct")

    @property
    def mem_pct(self) -> float | None:
        """Compute-memory throughput (the busiest of L1, L2, DRAM, fabric), percent of peak."""
        return self.metrics.get("memory_throughput_pct")

    @property
    def occupancy(self) -> float | None:
        """Achieved occupancy in percent."""
        return self.metrics.get("achieved_occupancy_pct")

    @property
    def l1_hit_rate(self) -> float | None:
        """L1/TEX hit rate in percent."""
        return self.metrics.get("l1_hit_rate_pct")

    @property
    def l2_hit_rate(self) -> float | None:
        """L2 hit rate in percent."""
        return self.metrics.get("l2_hit_rate_pct")

    @property
    def invocation_count(self) -> int:
        """Number of launches."""
        return self.launches

    @property
    def duration_us(self) -> float | None:
        """GPU time of all launches together, microseconds."""
        return self.duration_stats.total if self.duration_stats else None

    @property
    def avg_duration_us(self) -> float | None:
        """Mean GPU time of a launch, microseconds."""
        return self.duration_stats.mean if self.duration_stats else None

    @property
    def bottleneck(self) -> str | None:
        """The limiter's name once the kernel is diagnosed."""
        return self.diagnosis.limiter.value if self.diagnosis else None

    def summary(self) -> str:
        """One line: name, launches, mean duration, limiter."""
        mean = self.avg_duration_us
        time = "duration unknown" if mean is None else f"{mean:.2f} us"
        return f"{self.name}: {self.launches} x {time}, {self.bottleneck or 'not diagnosed'}"


@dataclass(frozen=True)
class Profile:
    """One capture."""

    source: Source
    device: Device | None
    kernels: tuple[KernelProfile, ...]
    warnings: tuple[str, ...] = ()
    label: str | None = None
