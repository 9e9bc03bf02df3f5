"""Device functions that narrow numbers in a kernel: row scales, 8-bit codes, outputs. Needs triton.

Triton's interpreter truncates float32 -> bfloat16, misrounds float32 -> e4m3 and makes 384 of NaN
there; in it, and only in it, values are rounded by hand first, so that the casts are exact.
"""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Whether kernels run in Triton's interpreter; fixed when kernels are defined."""

SMALLEST_SCALE = tl.constexpr(2.0**-126)
"""The smallest normal float32 number, whose inverse is finite; a row of zeros gets it."""
_FINEST_E4M3 = tl.constexpr(1.5 * 2.0**14)
_ROUND_TO_INTEGER = tl.constexpr(1.5 * 2.0**23)


@triton.jit
def magnitude_bits(x):
    """Bit pattern of |x|: as integers they order like the magnitudes, with infinity and then NaN on
    top, so a maximum over them does not lose a NaN as a float maximum may."""
    return x.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def row_scale(bits, LARGEST_CODE: tl.constexpr):
    """Scale of rows, `largest / LARGEST_CODE`, from the largest `magnitude_bits` in each."""
    largest = bits.to(tl.float32, bitcast=True)
    scale = tl.div_rn(largest, LARGEST_CODE + tl.zeros_like(largest))
    # A comparison, as `maximum` may drop a NaN.
    return tl.where(scale < SMALLEST_SCALE, SMALLEST_SCALE, scale)


@triton.jit
def divided(x, scale):
    """`x / scale` along rows, rounded as a division: codes then agree with a reference's even where
    a quotient lies half way between two codes, as many of bfloat16 numbers do. A product by the
    inverse and one correction cost three instructions an element, a division ten."""
    if INTERPRETED:
        quotient = tl.div_rn(x, scale[:, None] + tl.zeros_like(x))
    else:
        inverse = tl.div_rn(1.0 + tl.zeros_like(scale), scale)[:, None]
        near = x * inverse
        quotient = tl.fma(
            tl.fma(-near, scale[:, None] + tl.zeros_like(x), x), inverse + tl.zeros_like(x), near
        )
    return quotient


@triton.jit
def to_int8(x):
    """Nearest integer of |x| <= 127, ties to even: float32 adds it into its own low bits."""
    return (x + _ROUND_TO_INTEGER).to(tl.int32, bitcast=True).to(tl.int8)


@triton.jit
def without_low_bits(x, BITS: tl.constexpr):
    """float32 rounded to nearest even with fewer bits of mantissa; NaN stays NaN."""
    bits = x.to(tl.int32, bitcast=True)
    bits += (1 << (BITS - 1)) - 1 + ((bits >> BITS) & 1)
    return tl.where(x == x, (bits & -(1 << BITS)).to(tl.float32, bitcast=True), x)


@triton.jit
def to_fp8(x):
    """Nearest e4m3 number of |x| < 464, ties to even; NaN stays NaN."""
    if INTERPRETED:
        # Below 2^-6 e4m3 numbers are multiples of 2^-9, which the addition rounds to.
        fine = (x + _FINEST_E4M3) - _FINEST_E4M3
        x = tl.where(tl.abs(x) < 0.015625, fine, without_low_bits(x, 20))
    codes = x.to(tl.float8e4nv)
    if INTERPRETED:
        bits = tl.where(x == x, codes.to(tl.int8, bitcast=True), 0x7F)
        codes = bits.to(tl.int8).to(tl.float8e4nv, bitcast=True)
    return codes


@triton.jit
def quantized(x, INT8: tl.constexpr):
    """Codes of values that were divided by their scale."""
    if INT8:
        codes = to_int8(x)
    else:
        codes = to_fp8(x)
    return codes


@triton.jit
def narrowed(x, DTYPE: tl.constexpr):
    """float32 as an output's type, rounded to nearest even; e4m3 saturates at +-448."""
    if DTYPE == tl.float8e4nv:
        # Comparisons let a NaN through.
        x = tl.where(x > 448.0, 448.0, x)
        x = tl.where(x < -448.0, -448.0, x)
        return to_fp8(x)
    if INTERPRETED and DTYPE == tl.bfloat16:
        x = without_low_bits(x, 16)
    return x.to(DTYPE)


@triton.jit
def multiplicand(x, LIKE: tl.constexpr):
    """16-bit operand of a product from codes or numbers; float32 in the interpreter, whose `dot`
    multiplies the bit patterns of bfloat16."""
    return x.to(tl.float32) if INTERPRETED else x.to(LIKE)
