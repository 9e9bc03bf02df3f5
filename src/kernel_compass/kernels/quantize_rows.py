"""Rows of activations to 8-bit codes in a launch of their own. Needs triton.

What a product does beforehand that multiplies codes alone: the first study's, and those of
libraries. Codes and scales are those of `references.quantize_activations`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernel_compass.kernels.plain_layouts import next_power_of_2
from kernel_compass.kernels.rounding import divided, magnitude_bits, quantized, row_scale

LONGEST_BLOCK = 16_384
"""Numbers that a program holds in registers; a longer row is read twice."""
_INFINITY = tl.constexpr(0x7F800000)
"""Its bit pattern; those of NaN are above."""


@triton.jit
def stored_scale(bits, LARGEST_CODE: tl.constexpr):
    """As `row_scale`, but 1 for zeros and NaN for what is not finite: another kernel reads it."""
    scale = tl.where(bits == 0, 1.0, row_scale(bits, LARGEST_CODE))
    return tl.where(bits >= _INFINITY, float("nan"), scale)


@triton.jit(do_not_specialize=["M"])
def quantize_rows(
    a,
    codes,
    scales,
    K,
    M,
    stride_ah,
    stride_am,
    INT8: tl.constexpr,
    SINGLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row of one head a program: `codes [H, M, K]`, `scales [H, M]`."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    a += head * stride_ah + row * stride_am
    codes += (head * M + row) * K
    LARGEST: tl.constexpr = 127.0 if INT8 else 448.0
    k = tl.arange(0, BLOCK)[None, :]
    if SINGLE:
        x = tl.load(a + k, mask=k < K, other=0.0).to(tl.float32)
        scale = stored_scale(tl.max(magnitude_bits(x), axis=1), LARGEST)
        tl.store(codes + k, quantized(divided(x, scale), INT8), mask=k < K)
    else:
        bits = tl.zeros((1,), tl.int32)
        for first in tl.range(0, K, BLOCK):
            x = tl.load(a + first + k, mask=first + k < K, other=0.0)
            bits = tl.maximum(bits, tl.max(magnitude_bits(x), axis=1))
        scale = stored_scale(bits, LARGEST)
        for first in tl.range(0, K, BLOCK):
            x = tl.load(a + first + k, mask=first + k < K, other=0.0).to(tl.float32)
            tl.store(codes + first + k, quantized(divided(x, scale), INT8), mask=first + k < K)
    tl.store(scales + head * M + row + tl.arange(0, 1), scale)


def launch_quantize_rows(a: Any, codes: Any, scales: Any) -> None:
    """One launch.

    Args:
        a: `(H, M, K)`, a floating type, any strides with a dense last dimension.
        codes: `(H, M, K)`, dense, int8 or float8_e4m3fn; written. One head may have more rows,
            which are left as they are.
        scales: H x M float32, dense; written.
    """
    heads, rows, reduction = a.shape
    block = min(next_power_of_2(reduction), LONGEST_BLOCK)
    quantize_rows[(rows, heads)](
        a,
        codes,
        scales,
        reduction,
        rows,
        a.stride(0),
        a.stride(1),
        INT8=not codes.dtype.is_floating_point,
        SINGLE=block >= reduction,
        BLOCK=block,
        num_warps=min(max(block // 1024, 4), 16),
    )
