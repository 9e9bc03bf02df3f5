"""What can be said of a workload's number formats before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.calibration import Basis
from kernel_compass.records.device import Device
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision, Workload


class Verdict(StrEnum):
    """Whether a format is faster than bf16; an estimate, never an acceptance."""

    PAYS = "pays"
    """The slow end of its band beats the fast end of bf16's."""
    CANNOT_PAY = "cannot_pay"
    """Even at its floor it is not faster than the fast end of bf16's band."""
    CANNOT_TELL = "cannot_tell"
    """The bands overlap: a probe decides."""


class CacheFit(StrEnum):
    """Whether a working set stays in L2 when it is re-read."""

    FITS = "fits"
    SPILLS = "spills"
    EDGE = "edge"
    """Within the soft transition around the measured capacity: a part of it stays."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ErrorGuide:
    """What a storage format costs in accuracy on Gaussian data."""

    format: str
    """`fp8`, `int8`, `int4 g128`, ..."""
    relative_pct: float
    """Relative Frobenius error of the product, percent."""


@dataclass(frozen=True)
class Estimate:
    """A modelled time with its error band, microseconds; launch included."""

    time_us: float
    low_us: float
    high_us: float
    bound: str
    """The deciding level: `dram`, `l2`, `compute`, `dequantization`, `launch`."""


@dataclass(frozen=True)
class FloorEstimate:
    """The floor of one format, microseconds."""

    time_us: float
    high_us: float | None
    """The cold end in situ, else `None`."""
    bound: str
    basis: Basis
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FormatAdvice:
    """One precision of one workload in one regime."""

    precision: Precision
    weight_bytes: int
    """As stored, scales included."""
    working_set_bytes: int
    """Weights, activations and outputs."""
    fit: CacheFit
    """Whether the working set stays in L2 when it is re-read, whatever the regime."""
    floor: FloorEstimate | None
    estimate: Estimate | None
    """A kernel that nobody has probed."""
    at_most: float | None
    """Estimated bf16 time over this format's floor: the most that can be won; in situ the larger of
    warm's and cold's."""
    errors: tuple[ErrorGuide, ...]
    within_budget: bool | None
    """Whether one of the formats keeps the error budget; `None` without a budget."""
    verdict: Verdict | None
    """`None` for bf16, which the others are compared with."""
    reason: str
    l2_flops_per_byte: float | None = None
    """Intensity at L2: FLOP over all bytes, once."""
    dram_flops_per_byte: float | None = None
    """Intensity at DRAM: FLOP over the bytes it serves; `None` where L2 serves all, or in situ."""


@dataclass(frozen=True)
class RegimeAdvice:
    """All precisions of one workload in one regime; bf16 first."""

    regime: Regime
    formats: tuple[FormatAdvice, ...]


@dataclass(frozen=True)
class WorkloadAdvice:
    """One workload; the last three say where in a model it stands."""

    workload: Workload
    regimes: tuple[RegimeAdvice, ...]
    layers: int | None = None
    """Layers that launch it, once each."""
    sharded: str | None = None
    """The dimension that tensor parallelism splits, or `replicated`."""
    assumption: str | None = None


@dataclass(frozen=True)
class StepTotal:
    """All listed products of a model's step in one precision and regime."""

    tokens: int
    regime: Regime
    precision: Precision
    estimate_us: float | None
    """Sum of the estimates over the layers."""
    floor_us: float | None
    """Sum of the floors."""


@dataclass(frozen=True)
class Advice:
    """What was asked, against which machine, and the answers."""

    calibration: str
    """Its name."""
    device: Device
    launch_mode: LaunchMode
    workloads: tuple[WorkloadAdvice, ...]
    budget_pct: float | None = None
    """Largest relative error allowed."""
    model: str | None = None
    tp: int | None = None
    """GPUs the model is split over."""
    totals: tuple[StepTotal, ...] = ()
    notes: tuple[str, ...] = ()
