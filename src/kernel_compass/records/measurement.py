"""A time, with everything that says what it is a time of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.environment import Clocks, Environment
from kernel_compass.records.profile import Regime


class LaunchMode(StrEnum):
    """How launches reach the GPU."""

    GRAPH = "graph"
    """CUDA-graph replay."""
    EAGER = "eager"


class ColdMethod(StrEnum):
    """How the streamed operands were driven out of L2."""

    ROTATE = "rotate"
    """Cycled through sets that total well over L2."""
    FLUSH = "flush"
    """A buffer larger than L2 is read between launches, and its time subtracted."""


@dataclass(frozen=True)
class Measurement:
    """The time of one launch, microseconds, from the slope between n and 2n launches."""

    samples_us: tuple[float, ...]
    """One slope a sample: (time of 2n launches - time of n launches) / n."""
    regime: Regime
    launch_mode: LaunchMode
    launches_per_replay: int
    """n."""
    operand_sets: int
    """Distinct sets of streamed operands cycled; 1 when warm."""
    streamed_bytes: int
    """Bytes of one set of streamed operands; 0 where the caller did not name them."""
    clocks: Clocks
    environment: Environment
    cold_method: ColdMethod | None = None
    fallback_reason: str | None = None
    """Why `eager` stands where `graph` was asked for."""
    warnings: tuple[str, ...] = ()
    """What makes the number doubtful: throttling, a clock that moved, a cold that is not."""
    replay_overhead_us: float | None = None
    """The replay's own cost, which the slope leaves out: median of 2 T(n) - T(2n)."""

    @property
    def plain_us(self) -> float | None:
        """What T(n) / n would say: the time with the replay's own cost spread over n launches."""
        if self.replay_overhead_us is None:
            return None
        return self.median_us + self.replay_overhead_us / self.launches_per_replay

    @property
    def median_us(self) -> float:
        """The time: the median of the samples."""
        return self.quantile_us(0.5)

    def quantile_us(self, q: float) -> float:
        """A quantile of the samples, linear between neighbours.

        Args:
            q: 0 to 1.
        """
        ordered = sorted(self.samples_us)
        place = q * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    @property
    def spread_pct(self) -> float:
        """Half the distance of the quartiles, percent of the median."""
        half = (self.quantile_us(0.75) - self.quantile_us(0.25)) / 2
        return 100.0 * half / self.median_us if self.median_us > 0 else 0.0


@dataclass(frozen=True)
class PairedSamples:
    """Interleaved times of two callables: pair i was measured in one ABBA block.

    `baseline_us[i]` and `candidate_us[i]` are times of one launch, microseconds.
    """

    baseline_us: tuple[float, ...]
    candidate_us: tuple[float, ...]
    regime: Regime
    launch_mode: LaunchMode
    launches_per_replay: int
    process: int = 0
    """Which fresh process measured it, counted from 0."""
    warnings: tuple[str, ...] = ()
    """What makes the times doubtful: throttling, a moved clock, a fallback to eager, ..."""
    environment: Environment | None = None
