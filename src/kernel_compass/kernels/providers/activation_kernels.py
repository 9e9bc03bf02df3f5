"""The small kernel after an int8 product of a library: int32 to 16 bits."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _scaled(product, rows, columns, out, product_stride, out_stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    value = tl.load(product + row * product_stride + at, mask=inside, other=0).to(tl.float32)
    value = value * tl.load(rows + row) * tl.load(columns + at, mask=inside, other=0.0)
    tl.store(out + row * out_stride + at, value.to(out.dtype.element_ty), mask=inside)


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
