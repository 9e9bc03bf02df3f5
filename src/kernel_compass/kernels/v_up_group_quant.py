"""MLA's value projection with the quantization that its successor wants. Needs triton.

`y[m, h] = x[m, h] @ W_UV[h]`, written as e4m3 codes `(M, H * N)` with a float32 scale for each 128
columns: the operand of a block-scaled output projection. One head of DeepSeek-V3 is one such group,
so that the program that computes it can quantize it: no 16-bit result is written, read and
transposed in between. Codes and scale come from the float32 sums, rounded once.

Bitwise the same from run to run, and each row in any batch under one configuration. A group that
holds an infinity or a NaN comes out with a scale that is not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_compass.errors import UsageError
from kernel_compass.kernels.device_tiles import product_tile
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.plain_layouts import (
    PlainWeight,
    capability_of,
    next_power_of_2,
    with_heads,
)
from kernel_compass.kernels.plain_tiles import (
    row_tile,
    row_tiles,
    shared_limit,
    space_of,
    weights_left,
)
from kernel_compass.kernels.rounding import divided, magnitude_bits, narrowed, row_scale
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import BLOCK as SCALE_BLOCK
from kernel_compass.records.number_format import Code
from kernel_compass.records.workload import Op, Traffic, Workload

CAPABILITIES = dict.fromkeys((Code.BF16, Code.FP16, Code.INT8, Code.FP8), (8, 9))
"""The oldest compute capability for each kind of weight: the output is e4m3."""
GROUP = tl.constexpr(SCALE_BLOCK)
"""Columns that share a scale."""


@triton.jit(do_not_specialize=["M"])
def product_and_groups(
    a,
    w,
    w_scales,
    codes,
    scales,
    M,
    N,
    K,
    stride_am,
    stride_ah,
    stride_wh,
    stride_wk,
    stride_wsh,
    stride_cm,
    stride_sm,
    stride_sg,
    SCALED: tl.constexpr,
    EVEN: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One group of columns of one head, some rows of it, a program."""
    head = tl.program_id(1).to(tl.int64)
    first_m = (tl.program_id(2) * BLOCK_M).to(tl.int64)
    n = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    m = tl.arange(0, BLOCK_M)
    rows = M - first_m
    a += head * stride_ah + first_m * stride_am
    w += head * stride_wh
    total = product_tile(
        a, w, n, stride_am, stride_wk, rows, N, K, EVEN, SWAP, BLOCK_M, GROUP, BLOCK_K
    )
    if SCALED:
        w_scale = tl.load(w_scales + head * stride_wsh + n)
        total *= w_scale.to(tl.float32)[None, :]
    scale = row_scale(tl.max(magnitude_bits(total), axis=1), 448.0)
    inside = m < rows
    at = codes + (first_m + m)[:, None] * stride_cm + head * N + n[None, :]
    kind: tl.constexpr = codes.dtype.element_ty
    tl.store(at, narrowed(divided(total, scale), kind), mask=inside[:, None])
    group = head * (N // GROUP) + tl.program_id(0)
    tl.store(scales + (first_m + m) * stride_sm + group * stride_sg, scale, mask=inside)


def default_config(workload: Workload, capability: tuple[int, int] | None) -> Config:
    """The rule that ships, for a product of H x M x K x N."""
    rows = row_tile(workload, 64)
    return {
        "BLOCK_M": rows,
        "BLOCK_K": min(max(next_power_of_2(workload.reduction), 32), 64),
        "SWAP": weights_left(rows, capability),
        "num_warps": 4,
        "num_stages": 4,
    }


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """All configurations that may be tried, the default first; a tile is 128 columns, one group."""
    choices = {
        "BLOCK_M": row_tiles(row_tile(workload, 64)),
        "BLOCK_K": (32, 64, 128, 256),
        "SWAP": (False, True),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4, 5, 6),
    }
    default = default_config(workload, capability)
    return space_of(default, choices, lambda config: fits(config, workload, capability))


def fits(config: Config, workload: Workload, capability: tuple[int, int] | None) -> bool:
    """Whether a configuration is worth compiling: shared memory and registers."""
    rows, depth = int(config["BLOCK_M"]), int(config["BLOCK_K"])
    threads, stages = 32 * int(config["num_warps"]), int(config["num_stages"])
    return (
        2 * (SCALE_BLOCK + rows) * depth * (stages - 1) <= shared_limit(capability)
        and depth <= max(next_power_of_2(workload.reduction), 32)
        and rows * SCALE_BLOCK // threads <= 64
        and (SCALE_BLOCK + rows) * depth // threads <= 256
        # As the left operand a converted weight lives in registers, for every stage.
        and (not config["SWAP"] or SCALE_BLOCK * depth // threads <= 64)
    )


def traffic(workload: Workload, weight: Code) -> Traffic:
    """Compulsory bytes and operations; 8-bit weights have a scale of two bytes a column."""
    heads, rows, columns = workload.heads, workload.tokens, workload.columns
    eight = weight.bits == 8
    return Traffic(
        weight_bytes=workload.weights * weight.bits // 8 + 2 * heads * columns * eight,
        activation_bytes=2 * heads * rows * workload.reduction,
        output_bytes=heads * rows * (columns + 4 * columns // SCALE_BLOCK),
        flops=workload.flops,
        dequantized_weights=workload.weights * eight,
        math="bf16",
        tokens=rows,
    )


def v_up_group_quant(
    x: Any,
    weight: PlainWeight,
    *,
    out: Any = None,
    scales: Any = None,
    config: Config | None = None,
) -> tuple[Any, Any]:
    """One launch: e4m3 codes and scales of `x[m, h] @ W_UV[h]`.

    Args:
        x: `(M, H, K)` bfloat16 or float16, the last dimension dense; attention's `(H, M, K)` is
            passed as its transposed view.
        weight: from `plain_layouts.pack_plain`; N a multiple of 128.
        out: `(M, H * N)` float8_e4m3fn, the last dimension dense; a new one where `None`.
        scales: `(M, H * N / 128)` float32, any strides (some kernels want M contiguous); likewise.
        config: one of `space`; `None` = the rule's.

    Returns:
        `out` and `scales`: the value is code times scale.

    Raises:
        UsageError: sizes that do not fit; operands on a CPU without Triton's interpreter.
    """
    heads, reduction, columns = weight.codes.shape
    if columns % SCALE_BLOCK:
        raise UsageError(
            f"A head has {columns} columns.", f"Groups of {SCALE_BLOCK} must not span two heads."
        )
    a = with_heads(x, "x", (None, heads, reduction))
    weight.check_meets(a)
    rows, groups = a.shape[0], columns // SCALE_BLOCK
    if out is None:
        out = torch.empty((rows, heads * columns), dtype=torch.float8_e4m3fn, device=x.device)
    if scales is None:
        scales = torch.empty((rows, heads * groups), dtype=torch.float32, device=x.device)
    codes = with_heads(out, "out", (1, rows, heads * columns))
    if tuple(scales.shape) != (rows, heads * groups):
        raise UsageError(f"scales is {tuple(scales.shape)}.", f"Pass ({rows}, {heads * groups}).")
    if not rows * heads:
        return out, scales
    check_can_launch(product_and_groups, a, weight.codes)
    if config is None:
        workload = Workload(Op.BMM, heads, rows, reduction, columns, "v_up")
        config = default_config(workload, capability_of(weight.codes))
    scaled = weight.scales is not None
    product_and_groups[(groups, heads, -(-rows // int(config["BLOCK_M"])))](
        a,
        weight.codes,
        weight.scales if scaled else weight.codes,
        codes,
        scales,
        rows,
        columns,
        reduction,
        a.stride(0),
        a.stride(1),
        weight.codes.stride(0),
        columns,
        columns if scaled else 0,
        codes.stride(1),
        scales.stride(0),
        scales.stride(1),
        SCALED=scaled,
        EVEN=reduction % int(config["BLOCK_K"]) == 0,
        **config,
    )
    return out, scales
