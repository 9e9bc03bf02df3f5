"""What a workload must move and compute in a precision: every operand once, as stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.analysis.peaks import EIGHT_BIT
from kernel_compass.errors import UsageError
from kernel_compass.records.workload import Precision, Traffic, Workload

BF16_BYTES = 2


@dataclass(frozen=True)
class WeightFormat:
    """How the weights of a precision lie in memory, and what the arithmetic makes of them."""

    bits: int
    scale_bytes: int
    """Bytes of one scale; 0 where there are none."""
    group: int | None
    """Reduction elements that share a scale; `None` = a whole output column."""
    converted: bool
    """Each weight is converted before the arithmetic."""
    math: str
    """Whose peak bounds the arithmetic, as in `Traffic.math`."""


FORMATS: Mapping[Precision, WeightFormat] = {
    Precision.BF16: WeightFormat(16, 0, None, converted=False, math="bf16"),
    Precision.W8A16: WeightFormat(8, 4, None, converted=True, math="bf16"),
    Precision.W8A8: WeightFormat(8, 4, None, converted=False, math=EIGHT_BIT),
    Precision.W4A16: WeightFormat(4, 2, 128, converted=True, math="bf16"),
}
"""8 bits: one float32 scale per output column. 4 bits: one 16-bit scale per output column and
group of 128 along the reduction. Both as in the operand sizes of the cache-barrier gate sweep
(8 MiB of bf16 at K = 128 are 4.125 MiB in w8 and 2.0625 MiB in w4)."""


def traffic(workload: Workload, precision: Precision) -> Traffic:
    """The compulsory traffic of one launch.

    Activations and outputs are counted as the program holds them, 2 bytes an element in every
    precision: a kernel that quantizes its activations still reads them at 16 bits once.

    Raises:
        UsageError: a dimension is not a positive whole number.
    """
    _check(workload)
    stored = FORMATS[precision]
    rows = workload.heads * workload.tokens
    return Traffic(
        weight_bytes=weight_bytes(workload, precision),
        activation_bytes=BF16_BYTES * rows * workload.reduction,
        output_bytes=BF16_BYTES * rows * workload.columns,
        flops=workload.flops,
        dequantized_weights=workload.weights if stored.converted else 0,
        math=stored.math,
        tokens=workload.tokens,
    )


def weight_bytes(workload: Workload, precision: Precision) -> int:
    """Bytes of the weights with their scales; an odd row of 4-bit weights is padded to a byte."""
    stored = FORMATS[precision]
    columns = workload.heads * workload.columns
    groups = 1 if stored.group is None else -(-workload.reduction // stored.group)
    column_bytes = -(-workload.reduction * stored.bits // 8)
    return columns * (column_bytes + groups * stored.scale_bytes)


def _check(workload: Workload) -> None:
    sizes = {
        "heads": workload.heads,
        "tokens": workload.tokens,
        "reduction": workload.reduction,
        "columns": workload.columns,
    }
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise UsageError(
                f"{name} is {size} in {workload.shape_text}.",
                "Every dimension of a workload is a whole number, 1 or more.",
            )
