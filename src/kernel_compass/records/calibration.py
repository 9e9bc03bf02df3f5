"""What one machine can do: the ceilings every floor and prediction rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime


class Basis(StrEnum):
    """Where a calibrated value comes from."""

    MEASURED = "measured"
    EXTRAPOLATED = "extrapolated"
    """Derived from measured values by a formula that its `source` names."""
    DATASHEET = "datasheet"
    """The vendor's figure: annotates, bounds what is credible, never predicts."""
    ABSENT = "absent"


@dataclass(frozen=True)
class Quantity:
    """One calibrated number with its interval and origin; the unit is in the field's name."""

    value: float | None
    basis: Basis
    source: str
    """What measured it, or the file and column it was published in; for `absent`, why."""
    low: float | None = None
    high: float | None = None
    """The interval: quartiles of the samples for times and rates, 95 % for the capacity and the
    noise, the steps measured on either side for bytes in flight."""


class Access(StrEnum):
    """What a streaming kernel does to its buffer."""

    READ = "read"
    READ_WRITE = "read_write"
    """Half of the bytes read, half written."""


@dataclass(frozen=True)
class CurvePoint:
    """One working set, streamed once a launch."""

    bytes: int
    """Bytes moved by one launch = working set (read plus written)."""
    duration_us: float
    """Time of one launch, launch included."""
    basis: Basis = Basis.MEASURED

    @property
    def bandwidth_tbs(self) -> float:
        """TB/s = 1e12 bytes/s, launch included."""
        return self.bytes / self.duration_us / 1e6


@dataclass(frozen=True)
class StreamCurve:
    """Time to stream a working set, over its size; points in ascending order of bytes."""

    access: Access
    regime: Regime
    """`warm` (the same buffer re-read) or `cold` (rotated)."""
    points: tuple[CurvePoint, ...]
    source: str


@dataclass(frozen=True)
class NoiseFloor:
    """A kernel compared with itself: what differences are nothing. Percent, standard deviation."""

    within_process_pct: Quantity
    between_processes_pct: Quantity


@dataclass(frozen=True)
class Calibration:
    """The ceilings of one device under one driver."""

    name: str
    """Short: `h200`, or a slug of the device's name."""
    environment: Environment
    launch_mode: LaunchMode
    """The launch mode of the curves; `t0_graph_us` or `t0_eager_us` is inside their times."""
    curves: tuple[StreamCurve, ...]
    c_eff_bytes: Quantity
    """Effective L2 capacity: the working set up to which a re-read stays in L2."""
    peak_tflops: Mapping[str, Quantity]
    """Dense peaks by format: `bf16`, `fp8`, `int8`, `fp32`; TFLOP/s (TOP/s for int8)."""
    dequantization_tweights_s: Mapping[str, Quantity]
    """By format (`int4`, `int8`, `fp8`): 1e12 weights converted to bf16 a second, one by one;
    `int4_packed`: two at a time by a bit trick."""
    t0_graph_us: Quantity
    """Marginal fixed cost of a launch in a CUDA graph."""
    t0_eager_us: Quantity
    bytes_in_flight: Mapping[str, Quantity]
    """Bytes that must be in flight for 90 % of the plateau, by level: `dram`, `l2`."""
    noise: NoiseFloor
    datasheet: Mapping[str, Quantity]
    """Bounds nothing may exceed: `dram_tbs`, `bf16_tflops`, ...; missing ones are `absent`."""
    notes: tuple[str, ...] = ()

    def curve(self, access: Access, regime: Regime) -> StreamCurve | None:
        """The curve of this access in this regime, where there is one."""
        found = (c for c in self.curves if c.access is access and c.regime is regime)
        return next(found, None)
