"""How much error a number format may cost: derived from quantizing the very tensor at hand.

`budget = 1.05 e + 0.25 %`, where e is the relative Frobenius error of the product of the operands
as this project's quantizer rounds them, and 0.25 % what fidelity leaves to rounding the output. An
output that passes fidelity on those codes keeps to it: `e + 0.25 % (1 + e) <= budget`. The margin
of 5 % is what another quantizer of the same format may lose on top, its scales rounded otherwise.
All of it is a mean: take operands with hundreds of outputs or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.validation.rounding import OUTPUT_TYPES

MARGIN = 1.05


@dataclass(frozen=True)
class FormatBudget:
    """What a format costs on one tensor, and what an implementation of it may cost."""

    inherent: float
    """Relative Frobenius error of the exact product of the quantized operands."""
    limit: float
    """What the output of an implementation may be off."""


@dataclass(frozen=True)
class FormatCheck:
    """An output against the product that was never quantized."""

    error: float
    """Relative Frobenius."""
    budget: FormatBudget

    @property
    def passed(self) -> bool:
        """Whether it keeps to its budget; NaN does not."""
        return self.error <= self.budget.limit


def format_error(output: Any, full: Any) -> float:
    """`||Y - A W|| / ||A W||`: what the format and the kernel cost together.

    Args:
        output: any floating type.
        full: the product of the operands before they were quantized, float64, the same shape.

    Raises:
        UsageError: the shapes differ, or the product is zero, empty or not finite.
    """
    if tuple(output.shape) != tuple(full.shape):
        raise UsageError(
            f"The output is {tuple(output.shape)}, the product {tuple(full.shape)}.",
            "Compare a product of the same operands.",
        )
    size = float(full.double().norm()) if full.numel() else 0.0
    if not 0 < size < float("inf"):
        raise UsageError(
            f"The norm of the product is {size}: no error is relative to it.",
            "Take random activations, and a weight that is not zero.",
        )
    return float((output.to(full.device).double() - full).norm()) / size


def format_budget(quantized: Any, full: Any, margin: float = MARGIN) -> FormatBudget:
    """The budget of a format for these operands.

    Args:
        quantized: the exact product of the operands as this project quantizes them, float64.
        full: the exact product of the operands themselves.
        margin: what another quantizer of the same format may lose on top, as a factor.

    Raises:
        UsageError: as `format_error`; or the quantized product is no nearer than zeros are.
    """
    inherent = format_error(quantized, full)
    limit = margin * inherent + OUTPUT_TYPES["bfloat16"].limit
    if not limit < 1:
        raise UsageError(
            f"The format loses {inherent:.1%} of this product: zeros would be as near.",
            "Take a finer format: a smaller group, zero points, or 8 bits.",
        )
    return FormatBudget(inherent, limit)
