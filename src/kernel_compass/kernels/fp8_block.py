"""Block-scaled e4m3 products as DeepSeek-V3 defines them, quantizing in the kernel. Needs triton.

Weights carry a scale for every 128 x 128 block; activations get one for every 128 along K of each
row, `largest / 448`, inside the kernel. Each step of 128 along K is one tensor-core product whose
float32 sum is scaled before it joins the others, so that the tensor core's own short sums never
grow longer than 128.

Bitwise the same from run to run, and each row in any batch under one configuration. A row that
holds an infinity or a NaN comes out without finite numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from kernel_compass.kernels.device_tiles import load_tile, multiply, store_tile, tile_place
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.plain_layouts import columns_first, scales_of, with_output
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
from kernel_compass.kernels.rounding import divided, magnitude_bits, row_scale, to_fp8
from kernel_compass.records.contracts import Config, Prepared
from kernel_compass.records.number_format import BLOCK as SCALE_BLOCK
from kernel_compass.records.number_format import Code
from kernel_compass.records.workload import Workload

CAPABILITIES = {Code.FP8: (8, 9)}
"""The oldest compute capability: e4m3 arithmetic began with it."""
LONGEST_REDUCTION = {Code.FP8: 2**31 - 1}
STEP = tl.constexpr(SCALE_BLOCK)
"""K that shares a scale, and that one step multiplies."""


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
    stride_sk,
    stride_oh,
    stride_om,
    EVEN: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One tile of one head a program; `BLOCK_N` divides 128, so a step has one weight scale."""
    head, first_m, first_n = tile_place(M, BLOCK_M, BLOCK_N)
    a += head * stride_ah + first_m * stride_am
    w += head * stride_wh + first_n * stride_wn
    w_scales += head * stride_sh + first_n // STEP
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    rows = M - first_m
    columns = N - first_n
    total = tl.zeros((BLOCK_N, BLOCK_M) if SWAP else (BLOCK_M, BLOCK_N), tl.float32)
    for step in tl.range(0, tl.cdiv(K, STEP)):
        k = step * STEP + tl.arange(0, STEP)
        codes = load_tile(w, n, k, stride_wn, columns, stride_wn, EVEN)
        x = load_tile(a, m, k, stride_am, rows, K, EVEN).to(tl.float32)
        w_scale = tl.load(w_scales + step * stride_sk).to(tl.float32)
        scale = row_scale(tl.max(magnitude_bits(x), axis=1), 448.0)
        part = multiply(to_fp8(divided(x, scale)), codes, False, SWAP)
        both = scale * w_scale
        total += part * (both[None, :] if SWAP else both[:, None])
    if SWAP:
        total = tl.trans(total)
    out += head * stride_oh + first_m * stride_om + first_n
    store_tile(out, total, m, n, stride_om, rows, columns)


def default_config(workload: Workload, capability: tuple[int, int] | None) -> Config:
    """The rule that ships: tiles for the rows at hand."""
    rows = row_tile(workload, 64)
    return {
        "BLOCK_M": rows,
        "BLOCK_N": 64,
        "SWAP": weights_left(rows, capability),
        "num_warps": 4,
        "num_stages": 4 if workload.reduction > 2 * SCALE_BLOCK else 2,
    }


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """All configurations that may be tried, the default first."""
    choices = {
        "BLOCK_M": row_tiles(row_tile(workload, 128)),
        "BLOCK_N": (16, 32, 64, 128),
        "SWAP": (False, True),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4, 5, 6),
    }
    default = default_config(workload, capability)
    return space_of(default, choices, lambda config: fits(config, capability))


def fits(config: Config, capability: tuple[int, int] | None) -> bool:
    """Whether a configuration is worth compiling: shared memory, registers, busy warps."""
    rows, columns = int(config["BLOCK_M"]), int(config["BLOCK_N"])
    threads, stages = 32 * int(config["num_warps"]), int(config["num_stages"])
    staged = (columns + 2 * rows) * SCALE_BLOCK * (stages - 1)
    return (
        staged + (columns + rows) * SCALE_BLOCK <= shared_limit(capability)
        and 2 <= rows * columns // threads <= 64
        and (columns + rows) * SCALE_BLOCK // threads <= 160
        and left_fits(config)
    )


def pack(weight: QuantizedWeight) -> tuple[Any, ...]:
    """`codes (H, N, K')` with K contiguous and padded to 16 bytes; `scales (H, K/128, N/128)`,
    rounded up, as they came."""
    return columns_first(weight.codes), scales_of(weight).contiguous()


def run(prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
    """One launch; operands as `kernels.w8a8.run`."""
    codes, scales = streamed
    heads, columns, padded = codes.shape
    reduction, config = prepared.workload.reduction, prepared.config
    x, y, out = with_output(a, out, (heads, reduction, columns))
    if not y.numel():
        return out
    check_can_launch(matrix_product, x, codes)
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
        scales.stride(1),
        y.stride(0),
        y.stride(1),
        EVEN=reduction % SCALE_BLOCK == 0,
        **config,
    )
    return out
