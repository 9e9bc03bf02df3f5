"""The two gates on a kernel's output, from its operands: fidelity, and the format's budget."""

from __future__ import annotations

from typing import Any

from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import expected, product
from kernel_compass.records.fidelity import Fidelity
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.validation import fidelity
from kernel_compass.validation import format_budget as budgets
from kernel_compass.validation.format_budget import FormatBudget


def check_fidelity(
    output: Any,
    a: Any,
    quantized: QuantizedWeight,
    *,
    rounded_weights: bool = False,
    limit: float | None = None,
) -> Fidelity:
    """Whether an output is the product of `a` and the dequantized weight.

    For several outputs of the same operands, `kernels.references.expected` once and
    `validation.fidelity.check_fidelity` for each is cheaper.

    Args:
        output: `(H, M, N)` or `(M, N)`.
        a: `(H, M, K)` or `(M, K)`, as the kernel got it.
        quantized: the weight that the kernel's operands were packed from.
        rounded_weights: the kernel rounds scaled weights to 16 bits before the product.
        limit: of the relative Frobenius error; `None` = the gate's own.
    """
    reference = expected(a, quantized)
    return fidelity.check_fidelity(output, reference, rounded_weights=rounded_weights, limit=limit)


def format_error(a: Any, full_weight: Any, quantized: QuantizedWeight) -> float:
    """What a quantized weight costs, no kernel involved: `||A'W' - AW|| / ||AW||`.

    Activations count as quantized where the format quantizes them.

    Args:
        a: `(H, M, K)` or `(M, K)`.
        full_weight: `(H, K, N)`, before it was quantized.
        quantized: what became of it.
    """
    return budgets.format_error(expected(a, quantized).value, product(a, full_weight))


def format_budget(a: Any, full_weight: Any, number_format: NumberFormat) -> FormatBudget:
    """What implementations of a format may be off on these operands.

    Args:
        a: `(H, M, K)` or `(M, K)`.
        full_weight: `(H, K, N)`, before it was quantized.
        number_format: the format; this project's quantizer is applied to the weight.
    """
    exact = expected(a, quantize(full_weight, number_format)).value
    return budgets.format_budget(exact, product(a, full_weight))
