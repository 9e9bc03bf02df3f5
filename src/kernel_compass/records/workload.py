"""An op with its shape, the number formats it can be computed in, and what it must move."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.records.profile import Regime


class Op(StrEnum):
    """What is computed."""

    BMM = "bmm"
    """`[H, M, K] @ [H, K, N]`."""
    LINEAR = "linear"
    """`x [M, K] @ W [N, K].T`; heads is 1."""


class Precision(StrEnum):
    """Formats of weights and activations: `w` bits, `a` bits."""

    BF16 = "bf16"
    W8A16 = "w8a16"
    W8A8 = "w8a8"
    W4A16 = "w4a16"


@dataclass(frozen=True)
class Workload:
    """One product of a weight and an activation."""

    op: Op
    heads: int
    """H; 1 for `linear`."""
    tokens: int
    """M, rows of the activation."""
    reduction: int
    """K."""
    columns: int
    """N."""
    name: str | None = None
    """What a model calls it, e.g. `q_absorb`."""

    @property
    def shape_text(self) -> str:
        """`bmm 128x1x128x512`, `linear 16x7168x4096`: in the order H, M, K, N and M, N, K."""
        if self.op is Op.LINEAR:
            return f"linear {self.tokens}x{self.columns}x{self.reduction}"
        return f"bmm {self.heads}x{self.tokens}x{self.reduction}x{self.columns}"

    @property
    def weights(self) -> int:
        """Number of weight elements."""
        return self.heads * self.reduction * self.columns

    @property
    def flops(self) -> int:
        """One multiply-add is 2 FLOP."""
        return 2 * self.heads * self.tokens * self.reduction * self.columns


@dataclass(frozen=True)
class Traffic:
    """The compulsory bytes and operations of one launch: every operand once."""

    weight_bytes: int
    """The streamed operand with its scales, as stored."""
    activation_bytes: int
    output_bytes: int
    flops: int
    dequantized_weights: int = 0
    """Weights that must be converted before the arithmetic; 0 where it takes them as stored."""
    math: str = "bf16"
    """Which peak bounds the arithmetic: a key of `Calibration.peak_tflops`, or `8bit`, the faster
    of `fp8` and `int8`, for a kernel that may choose."""
    tokens: int | None = None
    """M, the rows that meet every weight: what a tile rounds up; `None` = not known."""

    @property
    def total_bytes(self) -> int:
        """All bytes touched once."""
        return self.weight_bytes + self.activation_bytes + self.output_bytes


@dataclass(frozen=True)
class MeasuredLaunch:
    """One measured time of a kernel: what the latency model is fitted to."""

    workload: Workload
    precision: Precision
    regime: Regime
    """`warm` or `cold`."""
    time_us: float
