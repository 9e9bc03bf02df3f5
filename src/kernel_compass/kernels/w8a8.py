"""int8 and e4m3 products with the activations quantized in the kernel, row by row. Needs triton.

`out[h, m, n] = (a_codes[h, m] @ w_codes[h, :, n]) * a_scale[h, m] * w_scale[h, n]`. A separate
quantizing launch costs as much as a small product; here every program quantizes the rows it needs,
after it has asked for its weights. Where K does not fit one tile, it reads its rows twice: once for
their largest magnitude.

Bitwise the same from run to run. int8: each output row is also the same under any tile and in any
batch, for integer sums are exact; e4m3: the same in any batch under one configuration. A row that
holds an infinity or a NaN comes out without finite numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from kernel_compass.kernels.device_tiles import load_tile, multiply, store_tile, tile_place
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.plain_layouts import (
    columns_first,
    next_power_of_2,
    scales_of,
    with_output,
)
from kernel_compass.kernels.plain_tiles import (
    left_fits,
    row_tile,
    row_tiles,
    shared_limit,
    space_of,
    tile_grid,
    weights_left,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.rounding import divided, magnitude_bits, quantized, row_scale
from kernel_compass.records.contracts import Config, Prepared
from kernel_compass.records.number_format import Code
from kernel_compass.records.workload import Workload

CAPABILITIES = {Code.INT8: (8, 0), Code.FP8: (8, 9)}
"""The oldest compute capability for each kind of code: e4m3 arithmetic began with 8.9."""
LONGEST_REDUCTION = {Code.INT8: (2**31 - 1) // 127**2, Code.FP8: 2**31 - 1}
"""K up to which a 32-bit integer holds every sum."""


@triton.jit(do_not_specialize=["M"])
def matrix_product(
    a,
    w,
    w_scales,
    out,
    M,
    N,
    K,
    stride_ah,
    stride_am,
    stride_wh,
    stride_wn,
    stride_sh,
    stride_oh,
    stride_om,
    INT8: tl.constexpr,
    SINGLE: tl.constexpr,
    EVEN: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile `[BLOCK_M, BLOCK_N]` of one head a program."""
    head, first_m, first_n = tile_place(M, BLOCK_M, BLOCK_N)
    a += head * stride_ah + first_m * stride_am
    w += head * stride_wh + first_n * stride_wn
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    rows = M - first_m
    columns = N - first_n
    LARGEST: tl.constexpr = 127.0 if INT8 else 448.0
    if SINGLE:
        codes = load_tile(w, n, k, stride_wn, columns, stride_wn, EVEN)
        x = load_tile(a, m, k, stride_am, rows, K, EVEN).to(tl.float32)
        scale = row_scale(tl.max(magnitude_bits(x), axis=1), LARGEST)
        total = multiply(quantized(divided(x, scale), INT8), codes, INT8, SWAP)
    else:
        bits = tl.zeros((BLOCK_M,), tl.int32)
        for first in tl.range(0, K, BLOCK_K):
            x = load_tile(a, m, first + k, stride_am, rows, K, EVEN)
            bits = tl.maximum(bits, tl.max(magnitude_bits(x), axis=1))
        scale = row_scale(bits, LARGEST)
        kind: tl.constexpr = tl.int32 if INT8 else tl.float32
        total = tl.zeros((BLOCK_N, BLOCK_M) if SWAP else (BLOCK_M, BLOCK_N), kind)
        for first in tl.range(0, K, BLOCK_K):
            codes = load_tile(w, n, first + k, stride_wn, columns, stride_wn, EVEN)
            x = load_tile(a, m, first + k, stride_am, rows, K, EVEN).to(tl.float32)
            total += multiply(quantized(divided(x, scale), INT8), codes, INT8, SWAP)
    if SWAP:
        total = tl.trans(total)
    w_scale = tl.load(w_scales + head * stride_sh + first_n + n, mask=n < columns, other=0.0)
    y = total.to(tl.float32) * w_scale.to(tl.float32)[None, :] * scale[:, None]
    out += head * stride_oh + first_m * stride_om + first_n
    store_tile(out, y, m, n, stride_om, rows, columns)


def default_config(workload: Workload, capability: tuple[int, int] | None) -> Config:
    """The rule that ships: tiles for the rows at hand."""
    rows = row_tile(workload, 64)
    depth = min(max(next_power_of_2(workload.reduction), 32), 128 if rows == 64 else 512)
    if depth < workload.reduction:
        depth = min(depth, 256)
    return {
        "BLOCK_M": rows,
        "BLOCK_N": 64,
        "BLOCK_K": depth,
        "SWAP": weights_left(rows, capability),
        "num_warps": 4,
        "num_stages": 1 if depth >= workload.reduction else 3,
    }


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """All configurations that may be tried, the default first."""
    deepest = max(next_power_of_2(workload.reduction), 64)
    choices = {
        "BLOCK_M": row_tiles(row_tile(workload, 128)),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": [size for size in (64, 128, 256, 512) if size <= deepest],
        "SWAP": (False, True),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3, 4, 5),
    }
    default = default_config(workload, capability)
    return space_of(default, choices, lambda config: fits(config, workload, capability))


def fits(config: Config, workload: Workload, capability: tuple[int, int] | None) -> bool:
    """Whether a configuration is worth compiling: it fits shared memory and registers, keeps its
    warps busy, and asks for stages only where there is a loop to stage."""
    rows, columns, depth = (int(config[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    threads, stages = 32 * int(config["num_warps"]), int(config["num_stages"])
    single = depth >= workload.reduction
    staged = (columns + 2 * rows) * depth * max(stages - 1, 1)
    return (
        staged + (columns + rows) * depth <= shared_limit(capability)
        and 4 <= rows * columns // threads <= 128
        and (columns + rows) * depth // threads <= 512
        and (stages == 1 if single else stages > 1)
        and left_fits(config)
    )


def pack(weight: QuantizedWeight) -> tuple[Any, ...]:
    """`codes (H, N, K')` with K contiguous and padded to 16 bytes, `scales (H, N)` as they came."""
    return columns_first(weight.codes), scales_of(weight).reshape(weight.heads, -1).contiguous()


def run(prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
    """One launch.

    Args:
        prepared: its workload says K, its configuration is one of `space`.
        streamed: from `pack`.
        a: `(H, M, K)` or `(M, K)` bfloat16, float16 or float32, the last dimension dense.
        out: `(H, M, N)` or `(M, N)` likewise; a new one of the type of `a` where `None`.
    """
    codes, scales = streamed
    heads, columns, padded = codes.shape
    reduction, config = prepared.workload.reduction, prepared.config
    x, y, out = with_output(a, out, (heads, reduction, columns))
    if not y.numel():
        return out
    check_can_launch(matrix_product, x, codes)
    depth = int(config["BLOCK_K"])
    matrix_product[tile_grid(config, y)](
        x,
        codes,
        scales,
        y,
        x.shape[1],
        columns,
        reduction,
        x.stride(0),
        x.stride(1),
        codes.stride(0),
        padded,
        scales.stride(0),
        y.stride(0),
        y.stride(1),
        INT8=not codes.dtype.is_floating_point,
        SINGLE=depth >= reduction,
        EVEN=reduction % depth == 0,
        **config,
    )
    return out
