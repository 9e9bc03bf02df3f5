"""The first study's 8-bit product, written anew from its description. Needs triton.

Two launches: one quantizes the activations row by row into memory, one multiplies codes. The second
reads what the first has written and cannot start before it, so that a small product pays the fixed
cost of a launch twice; `w8a8.py` is the same product in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_compass.kernels import w8a8
from kernel_compass.kernels.device_tiles import load_tile, multiply, store_tile, tile_place
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.plain_layouts import with_output
from kernel_compass.kernels.plain_tiles import tile_grid
from kernel_compass.kernels.quantize_rows import launch_quantize_rows
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.study_tiles import StudyTiles
from kernel_compass.records.contracts import Prepared

CAPABILITIES = w8a8.CAPABILITIES
LONGEST_REDUCTION = w8a8.LONGEST_REDUCTION


@triton.jit(do_not_specialize=["M"])
def matrix_product(
    a,
    a_scales,
    w,
    w_scales,
    out,
    M,
    N,
    K,
    stride_wh,
    stride_wn,
    stride_sh,
    stride_oh,
    stride_om,
    INT8: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of one head a program, from codes on both sides."""
    head, first_m, first_n = tile_place(M, BLOCK_M, BLOCK_N)
    a += (head * M + first_m) * K
    w += head * stride_wh + first_n * stride_wn
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    kind: tl.constexpr = tl.int32 if INT8 else tl.float32
    total = tl.zeros((BLOCK_M, BLOCK_N), kind)
    for first in tl.range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        codes = load_tile(w, n, k, stride_wn, N - first_n, stride_wn, False)
        x = load_tile(a, m, k, K, M - first_m, K, False)
        total += multiply(x, codes, INT8, False)
    rows = M - first_m
    columns = N - first_n
    scale = tl.load(a_scales + head * M + first_m + m, mask=m < rows, other=0.0)
    w_scale = tl.load(w_scales + head * stride_sh + first_n + n, mask=n < columns, other=0.0)
    y = total.to(tl.float32) * w_scale.to(tl.float32)[None, :] * scale[:, None]
    out += head * stride_oh + first_m * stride_om + first_n
    store_tile(out, y, m, n, stride_om, rows, columns)


_TILES = StudyTiles(depth=128)
default_config = _TILES.default_config
space = _TILES.space


def pack(weight: QuantizedWeight) -> tuple[Any, ...]:
    """As `kernels.w8a8.pack`."""
    return w8a8.pack(weight)


def run(prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
    """Two launches; operands as `kernels.w8a8.run`."""
    codes, scales = streamed
    heads, columns, padded = codes.shape
    reduction, config = prepared.workload.reduction, prepared.config
    x, y, out = with_output(a, out, (heads, reduction, columns))
    if not y.numel():
        return out
    check_can_launch(matrix_product, x, codes)
    rows = x.shape[1]
    x_codes = torch.empty((heads, rows, reduction), dtype=codes.dtype, device=a.device)
    x_scales = torch.empty((heads, rows), dtype=torch.float32, device=a.device)
    launch_quantize_rows(x, x_codes, x_scales)
    matrix_product[tile_grid(config, y)](
        x_codes,
        x_scales,
        codes,
        scales,
        y,
        rows,
        columns,
        reduction,
        codes.stride(0),
        padded,
        scales.stride(0),
        y.stride(0),
        y.stride(1),
        INT8=not codes.dtype.is_floating_point,
        **config,
    )
    return out
