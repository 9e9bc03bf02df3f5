"""What tensor cores lose that add products of fp8 numbers in fewer bits than float32 has.

Hopper's align 32 products and the sum so far to the largest of these addends and keep 13 bits
behind its point (DeepSeek-V3 report, section 3.3.2); honest kernels go on in float32 every 128. An
addend so loses between 0 and `2^-13 t` towards zero, t the largest of its 33: on the mean not more
than half, and never more than the mean beside it. t is at most `(sum p^2 + s^2)^1/2` of the 32
products p and the sum s. So the loss is shifted by `sum of sign(p) 2^-14 t` at most: sums of one
sign lose all of it, and of random signs little is left. Beside that each addend strays by
`2^-14 t`.
"""

from __future__ import annotations

from typing import Any

ADDENDS = 32
"""Products that a tensor core adds at once."""
PROMOTED = 128
"""Products after which an honest kernel goes on in float32."""
_HALF = 2.0**-14
_MOST = 2.0**-6
"""128 addends, not the largest, lose 2^-13 of it each, and the largest is a part of the whole."""


def lost_bits(left: Any, part: Any) -> tuple[Any, Any, Any]:
    """`most`, `shift` and `squares` of a `records.fidelity.Deviation`, added up along K in order.

    Args:
        left: `(H, M, K)`, float64: dequantized.
        part: `(H, K, N)` likewise.
    """
    most = left.abs() @ part.abs() * _MOST
    shift, squares = most * 0, most * 0
    for first in range(0, left.shape[-1], ADDENDS):
        if first % PROMOTED == 0:
            total = most * 0
        x, w = left[..., first : first + ADDENDS], part[:, first : first + ADDENDS]
        square = x.square() @ w.square() + total.square()
        shift += (x.sign() @ w.sign() + total.sign()) * square.sqrt()
        squares += square
        total = total + x @ w
    return most, shift * _HALF, squares * ((ADDENDS + 1) * _HALF**2)
