"""Two small kernels around 8-bit products of libraries: rows to codes, int32 to 16 bits."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _quantize_rows(
    source,
    codes,
    scales,
    source_stride,
    codes_stride,
    K,
    LARGEST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < K
    values = tl.load(source + row * source_stride + at, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(values), axis=0)
    scale = tl.where(largest > 0, tl.maximum(largest / LARGEST, 1.1754943508222875e-38), 1.0)
    # a maximum passes NaN over, and a quantized infinity would be finite: the row says so itself
    damaged = tl.sum(tl.where(values - values == 0, 0, 1), axis=0)
    tl.store(scales + row, tl.where(damaged > 0, float("nan"), scale))
    quotient = tl.minimum(tl.maximum(values / scale, -LARGEST), LARGEST)
    if codes.dtype.element_ty == tl.int8:
        # 1.5 * 2^23: the sum has no fraction bits left, so the addition rounds to nearest even
        quotient = (quotient + 12582912.0) - 12582912.0
    number = quotient.to(codes.dtype.element_ty)
    tl.store(codes + row * codes_stride + at, number, mask=inside)


@triton.jit
def _scaled(product, rows, columns, out, product_stride, out_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    value = tl.load(product + row * product_stride + at, mask=inside, other=0).to(tl.float32)
    value = value * tl.load(rows + row) * tl.load(columns + at, mask=inside, other=0.0)
    tl.store(out + row * out_stride + at, value.to(out.dtype.element_ty), mask=inside)


def launch_quantize_rows(rows: Any, codes: Any, scales: Any, largest: float) -> None:
    """Fill the first M rows of `codes` and all of `scales`; a block a row."""
    tokens, reduction = rows.shape
    block = triton.next_power_of_2(reduction)
    _quantize_rows[(tokens,)](
        rows,
        codes,
        scales,
        rows.stride(0),
        codes.stride(0),
        reduction,
        LARGEST=largest,
        BLOCK=block,
        num_warps=min(max(block // 1024, 4), 16),
    )


def launch_scaled(product: Any, rows: Any, columns: Any, out: Any) -> None:
    """Scale the first M rows of an int32 product into `out`; blocks of 1024 columns."""
    tokens, width = out.shape
    block = min(triton.next_power_of_2(width), 1024)
    _scaled[(tokens, triton.cdiv(width, block))](
        product,
        rows,
        columns,
        out,
        product.stride(0),
        out.stride(0),
        width,
        BLOCK=block,
        num_warps=4,
    )
