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
from itertools import product as combinations
from typing import Any

import triton
import triton.language as tl

from kernel_compass.kernels.plain_layouts import (
    columns_first,
    next_power_of_2,
    scales_of,
    with_heads,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.rounding import divided, magnitude_bits, narrowed, row_scale, to_fp8
from kernel_compass.kernels.w8a8 import load_tile, multiply, shared_limit
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
    row_tiles = tl.cdiv(M, BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    first_m = ((tl.program_id(0) % row_tiles) * BLOCK_M).to(tl.int64)
    first_n = ((tl.program_id(0) // row_tiles) * BLOCK_N).to(tl.int64)
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
    at = (
        out + head * stride_oh + first_m * stride_om + first_n + m[:, None] * stride_om + n[None, :]
    )
    inside = (m[:, None] < rows) & (n[None, :] < columns)
    tl.store(at, narrowed(total, out.dtype.element_ty), mask=inside)


def default_config(workload: Workload, capability: tuple[int, int] | None) -> Config:
    """The rule that ships: tiles for the rows at hand; weights as the left operand where too few
    rows would keep Hopper's wide instruction away."""
    rows = min(max(next_power_of_2(workload.tokens), 16), 64)
    return {
        "BLOCK_M": rows,
        "BLOCK_N": 64,
        "SWAP": rows < 64 and capability is not None and capability >= (9, 0),
        "num_warps": 4,
        "num_stages": 4 if workload.reduction > 2 * SCALE_BLOCK else 2,
    }


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """All configurations that may be tried, the default first."""
    default = default_config(workload, capability)
    found = [default]
    rows_wanted = min(max(next_power_of_2(workload.tokens), 16), 128)
    for rows, columns, swap, warps, stages in combinations(
        sorted({rows_wanted, max(rows_wanted // 2, 16)}),
        (16, 32, 64, 128),
        (False, True),
        (2, 4, 8),
        (2, 3, 4, 5, 6),
    ):
        sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "SWAP": swap}
        config: Config = {**sizes, "num_warps": warps, "num_stages": stages}
        if config != default and fits(config, capability):
            found.append(config)
    return found


def fits(config: Config, capability: tuple[int, int] | None) -> bool:
    """Whether a configuration is worth compiling: shared memory, registers, busy warps."""
    rows, columns = int(config["BLOCK_M"]), int(config["BLOCK_N"])
    threads, stages = 32 * int(config["num_warps"]), int(config["num_stages"])
    staged = (columns + 2 * rows) * SCALE_BLOCK * (stages - 1)
    return (
        staged + (columns + rows) * SCALE_BLOCK <= shared_limit(capability)
        and 2 <= rows * columns // threads <= 64
        and (columns + rows) * SCALE_BLOCK // threads <= 160
        and (not config["SWAP"] or (columns >= 64 and threads >= 128))
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
    x = with_heads(a, "a", (heads, None, reduction))
    rows = x.shape[1]
    if out is None:
        out = a.new_empty((*a.shape[:-1], columns))
    y = with_heads(out, "out", (heads, rows, columns))
    if not rows * heads * columns:
        return out
    tiles = -(-rows // int(config["BLOCK_M"])) * -(-columns // int(config["BLOCK_N"]))
    matrix_product[(tiles, heads)](
        x,
        codes,
        scales,
        y,
        rows,
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
