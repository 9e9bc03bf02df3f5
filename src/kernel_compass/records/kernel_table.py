"""Kernels side by side: one row a workload, number format, implementation and regime."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kernel_compass.records.advice import CacheFit
from kernel_compass.records.environment import Environment
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload

BASELINE = "cublas_bf16"
"""The implementation that `KernelRow.speedup` compares with."""

Key: TypeAlias = tuple[str | None, str | None, str, str, str | None, str, str]


class RowStatus(StrEnum):
    """What a row says."""

    PLANNED = "planned"
    """Bytes and floor; nothing was run."""
    MEASURED = "measured"
    """The output was checked against float64, then timed."""
    FAILED = "failed"
    """It raised, or its output failed the check; `reason` says which. It has no time."""
    UNSUPPORTED = "unsupported"
    """The implementation cannot do this here; `reason` says why."""


class Layout(StrEnum):
    """How activations and outputs of a bmm lie in memory."""

    SERVING = "serving"
    """`(H, M, ...)` views of `[M, H, ...]`, as serving engines hold them."""
    CONTIGUOUS = "contiguous"


@dataclass(frozen=True)
class KernelRow:
    """One kernel in one regime."""

    workload: Workload
    format: NumberFormat
    implementation: str | None
    """`None` in a plan: bytes and floor hold for all."""
    regime: Regime
    status: RowStatus
    weight_bytes: int
    """Weights as stored, with scales and zero points."""
    moved_bytes: int
    """Compulsory bytes of a launch: weights, activations, outputs, each once."""
    layout: Layout = Layout.SERVING
    model: str | None = None
    layers: int | None = None
    """Layers of the model that launch it, once each."""
    cache_fit: CacheFit = CacheFit.UNKNOWN
    """What a launch touches against the effective L2 capacity."""
    floor_us: float | None = None
    floor_basis: str | None = None
    """`calibration h200`, or `streamed in this run`."""
    time_us: float | None = None
    spread_pct: float | None = None
    launches: int | None = None
    """n: a time is the slope between n and 2n launches."""
    fidelity_error_pct: float | None = None
    """Against float64 on the dequantized operands: the kernel's own error, relative Frobenius."""
    format_error_pct: float | None = None
    """Against float64 at full precision: the kernel's error and the number format's."""
    baseline_us: float | None = None
    """`cublas_bf16` on the same workload in the same regime and run."""
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    environment: Environment | None = None

    def __post_init__(self) -> None:
        if (self.time_us is not None) is not (self.status is RowStatus.MEASURED):
            raise ValueError(
                f"a row that is {self.status.value} and its time contradict each other"
            )
        if self.time_us is not None and not self.time_us > 0:
            raise ValueError(f"{self.time_us} us is no time")
        unknown = self.format_error_pct is None
        if self.time_us is not None and self.format.weight is Code.INT4 and unknown:
            raise ValueError("a time of 4-bit weights is never given without its error")

    @property
    def key(self) -> Key:
        """What makes two rows of one environment the same measurement."""
        where = (self.implementation, self.regime.value, self.layout.value)
        what = (self.model, self.workload.name, self.workload.shape_text, self.format.name)
        return (*what, *where)

    @property
    def machine(self) -> tuple[str | None, ...] | None:
        """GPU, driver and versions, without the date; `None` where nothing was measured."""
        e = self.environment
        if e is None:
            return None
        return (e.device.name, e.driver, e.torch, e.triton, e.kernel_compass)

    @property
    def tflops(self) -> float | None:
        """TFLOP/s; one multiply-add is 2 FLOP."""
        return None if self.time_us is None else self.workload.flops / self.time_us / 1e6

    @property
    def gb_s(self) -> float | None:
        """Compulsory bytes over the time, GB/s = 1e9 bytes/s."""
        return None if self.time_us is None else self.moved_bytes / self.time_us / 1e3

    @property
    def headroom(self) -> float | None:
        """Time over floor."""
        if self.time_us is None or not self.floor_us:
            return None
        return self.time_us / self.floor_us

    @property
    def speedup(self) -> float | None:
        """Time of `cublas_bf16` in the same run over this; > 1 is faster."""
        if self.time_us is None or self.baseline_us is None:
            return None
        return self.baseline_us / self.time_us

    @property
    def model_us(self) -> float | None:
        """Time in all layers of the model together."""
        if self.time_us is None or self.layers is None:
            return None
        return self.time_us * self.layers


@dataclass(frozen=True)
class KernelTable:
    """Rows, and what holds for all of them."""

    rows: tuple[KernelRow, ...]
    calibration: str | None = None
    """Name of the calibration that floors and residency rest on."""
    c_eff_bytes: float | None = None
    """Its effective L2 capacity."""
    notes: tuple[str, ...] = ()
