"""Whether an implementation's output is its product, given where its library rounds."""

from __future__ import annotations

from dataclasses import replace

from kernel_compass.kernels.providers.allowances import (
    OWN_ACTIVATIONS,
    ROUNDED,
    SUMS_OF_16_BITS,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import product
from kernel_compass.records.contracts import Tensor
from kernel_compass.records.fidelity import Expected
from kernel_compass.validation.fidelity import check_fidelity
from kernel_compass.validation.format_budget import format_error

LEAST_SHARE = 16
"""Of K, that a kernel adds up in 16 bits."""


def verdict(
    implementation: str, output: Tensor, a: Tensor, weight: QuantizedWeight, expected: Expected
) -> tuple[str | None, float | None]:
    """Why an output is no product of its operands, and how far it is off.

    Args:
        implementation: its name; decides what is allowed.
        output: `(H, M, N)` or `(M, N)`.
        a: as the kernel got it.
        weight: as it was quantized.
        expected: from `references.expected` for these operands.

    Returns:
        The fault, `None` where there is none, and the relative Frobenius error.
    """
    if implementation in OWN_ACTIVATIONS:
        off, limit = format_error(output, product(a, weight)), OWN_ACTIVATIONS[implementation]
        fault = None if off <= limit else f"frobenius: {off:.3%} off, more than {limit:.3%}"
        return fault, off
    limit_of_sums = SUMS_OF_16_BITS.get(implementation)
    if limit_of_sums is not None:
        # The bound allows 2^-8 of the magnitude for rounded weights: 2^-9 a share, so many times.
        shares = expected.reduction / LEAST_SHARE
        expected = replace(expected, magnitude=expected.magnitude * (1 + shares / 2))
    rounded = implementation in ROUNDED or limit_of_sums is not None
    found = check_fidelity(output, expected, rounded_weights=rounded, limit=limit_of_sums)
    fault = None if found.fault is None else f"{found.fault.value}: {found.reason}"
    return fault, found.relative_frobenius
