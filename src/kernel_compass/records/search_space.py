"""What one implementation offers for a workload, and what is known of it before it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_compass.records.contracts import Config
from kernel_compass.records.profile import Regime


@dataclass(frozen=True)
class CandidateSpace:
    """All configurations of an implementation in one number format."""

    implementation: str
    configs: tuple[Config, ...]
    """The default first; never empty."""
    format: str | None = None
    source: str = ""
    """Its provider, or the file it is from."""
    estimates_us: Mapping[Regime, tuple[float | None, ...]] = field(default_factory=dict)
    """By configuration; a regime that is missing: nothing is known."""
    floors_us: Mapping[Regime, float] = field(default_factory=dict)
    """What its bytes and arithmetic take on this machine at least, by a calibration."""
    bounds: Mapping[Regime, str] = field(default_factory=dict)
    """What decides the floor: `dram`, `l2`, `compute`, `launch`."""
    weight_bytes: int | None = None
    """Of the streamed operand as it stores it."""
    basis: str = ""
    """What the estimates rest on, in a few words."""
    features: tuple[Mapping[str, float] | None, ...] = ()
    """Of a static compilation, by configuration; empty = not compiled."""
    cost_s: float = 2.0
    """What trying a configuration takes, seconds; estimated."""
    error_guide_pct: float | None = None
    """What the format costs on Gaussian data; `None` = not known, or no format."""

    @property
    def family(self) -> str:
        """`own_decode w8a16_fp8`: configurations whose estimates may be wrong together."""
        return " ".join(filter(None, (self.implementation, self.format)))
