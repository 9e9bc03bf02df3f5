"""What a workload must move in a number format: every operand once, as stored."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.analysis.peaks import EIGHT_BIT
from kernel_compass.analysis.traffic import FORMATS, traffic
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Precision, Traffic, Workload

SCALE_BYTES = 2
"""Scales are bfloat16, as `kernels.quantize` rounds them."""
BLOCK_SCALE_BYTES = 4
"""Those of block-scaled fp8 are float32, as checkpoints store them."""
ZERO_BITS = 4
"""Zero points of 4-bit weights are packed as the weights are."""


@dataclass(frozen=True)
class StoredWeight:
    """Bytes of a weight, by what they hold."""

    codes: int
    scales: int
    """Scales and zero points."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.codes + self.scales


def stored_weight(workload: Workload, number_format: NumberFormat) -> StoredWeight:
    """Bytes of the workload's weight; an odd row of 4-bit weights is padded to a byte."""
    w = workload
    column = -(-w.reduction * number_format.weight.bits // 8)
    count = number_format.scale_count(w.heads, w.reduction, w.columns)
    scales = count * (BLOCK_SCALE_BYTES if number_format.block else SCALE_BYTES)
    zeros = -(-count * ZERO_BITS // 8) if number_format.zero_points else 0
    return StoredWeight(w.heads * w.columns * column, scales + zeros)


def format_traffic(workload: Workload, number_format: NumberFormat) -> Traffic:
    """The compulsory traffic of one launch; activations and outputs have 2 bytes an element.

    Raises:
        UsageError: a dimension is not a positive whole number.
    """
    base = traffic(workload, Precision.BF16)
    stored = FORMATS[number_format.precision]
    w8a8 = number_format.precision is Precision.W8A8
    return Traffic(
        weight_bytes=stored_weight(workload, number_format).total,
        activation_bytes=base.activation_bytes,
        output_bytes=base.output_bytes,
        flops=base.flops,
        dequantized_weights=base.flops // (2 * workload.tokens) if stored.converted else 0,
        math=_eight_bit_math(number_format) if w8a8 else "bf16",
        tokens=workload.tokens,
    )


def _eight_bit_math(number_format: NumberFormat) -> str:
    return {Code.FP8: "fp8", Code.INT8: "int8"}.get(number_format.activation, EIGHT_BIT)
