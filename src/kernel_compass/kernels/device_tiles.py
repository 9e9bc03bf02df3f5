"""Device functions that place, load, multiply and store tiles. Needs triton."""

from __future__ import annotations

import triton
import triton.language as tl

from kernel_compass.kernels.rounding import multiplicand, narrowed

EXACT = tl.constexpr(128)
"""K after which e4m3 sums leave the tensor core, whose own sums keep about 14 bits."""


@triton.jit
def tile_place(M, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Head, first row and first column of a program's tile. Tiles of the same columns are together,
    so that L2 serves the weights to all but the first of them."""
    row_tiles = tl.cdiv(M, BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    first_m = ((tl.program_id(0) % row_tiles) * BLOCK_M).to(tl.int64)
    first_n = ((tl.program_id(0) // row_tiles) * BLOCK_N).to(tl.int64)
    return head, first_m, first_n


@triton.jit
def load_tile(base, rows, columns, stride, row_count, column_count, EVEN: tl.constexpr):
    """`[rows, columns]` of a row-major matrix, zero outside; `EVEN`: columns are all inside."""
    inside = rows[:, None] < row_count
    if not EVEN:
        inside = inside & (columns[None, :] < column_count)
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_tile(base, values, rows, columns, stride, row_count, column_count):
    """float32 `[rows, columns]` into a row-major matrix, rounded to its type; nothing outside."""
    inside = (rows[:, None] < row_count) & (columns[None, :] < column_count)
    at = base + rows[:, None] * stride + columns[None, :]
    tl.store(at, narrowed(values, base.dtype.element_ty), mask=inside)


@triton.jit
def multiply(x, w, INT8: tl.constexpr, SWAP: tl.constexpr):
    """8-bit `x [M, K] @ w [N, K].T`, as `[N, M]` where the weights are the left operand."""
    left = w if SWAP else x
    right = tl.trans(x) if SWAP else tl.trans(w)
    if INT8:
        total = tl.dot(left, right, out_dtype=tl.int32)
    else:
        total = tl.dot(left, right, max_num_imprecise_acc=min(EXACT, x.shape[1]))
    return total


@triton.jit
def product_tile(
    a,
    w,
    n,
    stride_am,
    stride_wk,
    rows,
    N,
    K,
    EVEN: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """16-bit `a [M, K] @ w [K, N]`, float32: columns `n` of the first `BLOCK_M` rows. 8-bit codes
    of the weights convert without error."""
    like: tl.constexpr = a.dtype.element_ty
    m = tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_N, BLOCK_M) if SWAP else (BLOCK_M, BLOCK_N), tl.float32)
    for first in tl.range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        tile = multiplicand(load_tile(w, k, n, stride_wk, K, N, EVEN), like)
        x = multiplicand(load_tile(a, m, k, stride_am, rows, K, EVEN), like)
        left = tl.trans(tile) if SWAP else x
        right = tl.trans(x) if SWAP else tile
        total = tl.dot(left, right, total)
    if SWAP:
        total = tl.trans(total)
    return total
