"""MLA's query in one launch: absorb, rotate, and write where attention reads. Needs triton.

`query[m, h, :N] = q_nope[m, h] @ W_UK[h]` and `query[m, h, N:] = rope(q_pe[m, h], positions[m])`,
in a buffer of 16 bits or of e4m3 with a static scale. Engines spend a batched product, a
transposition, a rotation, a concatenation and a quantization on it, each a launch of a few
microseconds for a few hundred KiB. Both parts are rounded once, from float32.

Bitwise the same from run to run, and each row in any batch under one configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import triton
import triton.language as tl

from kernel_compass.errors import UsageError
from kernel_compass.kernels.device_tiles import product_tile, store_tile
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.plain_layouts import (
    PlainWeight,
    capability_of,
    next_power_of_2,
    with_heads,
)
from kernel_compass.kernels.plain_tiles import (
    left_fits,
    row_tile,
    row_tiles,
    shared_limit,
    space_of,
    weights_left,
)
from kernel_compass.kernels.rounding import narrowed
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import Code
from kernel_compass.records.workload import Op, Traffic, Workload

CAPABILITIES = {Code.BF16: (8, 0), Code.FP16: (8, 0), Code.INT8: (8, 0), Code.FP8: (8, 9)}
"""The oldest compute capability for each kind of weight; an e4m3 query needs 8.9 as well."""


class RopeStyle(StrEnum):
    """Which two of the rotated numbers turn together."""

    INTERLEAVED = "interleaved"
    """2i and 2i + 1, as DeepSeek's checkpoints have them."""
    HALF_SPLIT = "half_split"
    """i and i + R/2 (GPT-NeoX)."""


@triton.jit
def rotate(
    pe,
    cos_sin,
    positions,
    inverse,
    out,
    rows,
    HALF,
    stride_pm,
    stride_cs,
    stride_om,
    INTERLEAVED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """Pairs of `pe [M, 2 HALF]` turned by the angles of their row's position."""
    m = tl.arange(0, BLOCK_M)
    i = tl.arange(0, BLOCK_R)
    first = 2 * i if INTERLEAVED else i
    second = first + 1 if INTERLEAVED else i + HALF
    inside = (m[:, None] < rows) & (i[None, :] < HALF)
    position = tl.load(positions + m, mask=m < rows, other=0).to(tl.int64)
    angle = cos_sin + position[:, None] * stride_cs + i[None, :]
    cos = tl.load(angle, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(angle + HALF, mask=inside, other=0.0).to(tl.float32)
    pe += m[:, None] * stride_pm
    out += m[:, None] * stride_om
    x = tl.load(pe + first[None, :], mask=inside, other=0.0).to(tl.float32)
    y = tl.load(pe + second[None, :], mask=inside, other=0.0).to(tl.float32)
    kind: tl.constexpr = out.dtype.element_ty
    tl.store(out + first[None, :], narrowed((x * cos - y * sin) * inverse, kind), mask=inside)
    tl.store(out + second[None, :], narrowed((y * cos + x * sin) * inverse, kind), mask=inside)


@triton.jit(do_not_specialize=["M"])
def absorb_and_rotate(
    nope,
    pe,
    w,
    w_scales,
    cos_sin,
    positions,
    out_scale,
    out,
    M,
    N,
    K,
    HALF,
    stride_nm,
    stride_nh,
    stride_pm,
    stride_ph,
    stride_wh,
    stride_wk,
    stride_sh,
    stride_cs,
    stride_om,
    stride_oh,
    SCALED: tl.constexpr,
    SCALED_OUT: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    EVEN: tl.constexpr,
    SWAP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    """A tile of columns of one head a program; of each row tile the last program rotates."""
    head = tl.program_id(1).to(tl.int64)
    first_m = (tl.program_id(2) * BLOCK_M).to(tl.int64)
    rows = M - first_m
    out += head * stride_oh + first_m * stride_om
    inverse = 1.0
    if SCALED_OUT:
        inverse = 1.0 / tl.load(out_scale).to(tl.float32)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        pe += head * stride_ph + first_m * stride_pm
        rotate(
            pe,
            cos_sin,
            positions + first_m,
            inverse,
            out + N,
            rows,
            HALF,
            stride_pm,
            stride_cs,
            stride_om,
            INTERLEAVED,
            BLOCK_M,
            BLOCK_R,
        )
    else:
        n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
        nope += head * stride_nh + first_m * stride_nm
        w += head * stride_wh
        total = product_tile(
            nope,
            w,
            n,
            stride_nm,
            stride_wk,
            rows,
            N,
            K,
            EVEN,
            SWAP,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
        )
        if SCALED:
            scale = tl.load(w_scales + head * stride_sh + n, mask=n < N, other=0.0)
            total *= scale.to(tl.float32)[None, :]
        m = tl.arange(0, BLOCK_M)
        store_tile(out, total * inverse, m, n, stride_om, rows, N)


def default_config(workload: Workload, capability: tuple[int, int] | None) -> Config:
    """The rule that ships, for a product of H x M x K x N."""
    rows = row_tile(workload, 64)
    return {
        "BLOCK_M": rows,
        "BLOCK_N": 64,
        "BLOCK_K": min(max(next_power_of_2(workload.reduction), 32), 128),
        "SWAP": weights_left(rows, capability),
        "num_warps": 4,
        "num_stages": 2,
    }


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """All configurations that may be tried, the default first."""
    choices = {
        "BLOCK_M": row_tiles(row_tile(workload, 64)),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (64, 128, 256),
        "SWAP": (False, True),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3, 4),
    }
    default = default_config(workload, capability)
    return space_of(default, choices, lambda config: fits(config, workload, capability))


def fits(config: Config, workload: Workload, capability: tuple[int, int] | None) -> bool:
    """Whether a configuration is worth compiling: shared memory, registers, busy warps."""
    rows, columns, depth = (int(config[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    threads, stages = 32 * int(config["num_warps"]), int(config["num_stages"])
    return (
        2 * (columns + rows) * depth * max(stages - 1, 1) <= shared_limit(capability)
        and depth <= max(next_power_of_2(workload.reduction), 64)
        and 4 <= rows * columns // threads <= 64
        and (columns + rows) * depth // threads <= 256
        and left_fits(config)
    )


def traffic(workload: Workload, weight: Code, rotated: int, output_bytes: int) -> Traffic:
    """Compulsory bytes and operations.

    Args:
        workload: H, M, K, N of the product.
        weight: the kind of its weights; 8-bit ones have a scale of two bytes a column.
        rotated: R, numbers of a head that are rotated; float32 cosines and sines count once a row.
        output_bytes: of one number of the query.
    """
    heads, rows = workload.heads, workload.tokens
    codes = workload.weights * weight.bits // 8
    scales = 2 * heads * workload.columns if weight.bits == 8 else 0
    return Traffic(
        weight_bytes=codes + scales,
        activation_bytes=2 * heads * rows * (workload.reduction + rotated)
        + rows * (4 * rotated + 8),
        output_bytes=output_bytes * heads * rows * (workload.columns + rotated),
        flops=workload.flops + 3 * heads * rows * rotated,
        dequantized_weights=workload.weights if weight.bits == 8 else 0,
        math="bf16",
        tokens=rows,
    )


def q_absorb_rope(
    q_nope: Any,
    q_pe: Any,
    weight: PlainWeight,
    cos_sin: Any,
    positions: Any,
    *,
    style: RopeStyle = RopeStyle.INTERLEAVED,
    out: Any = None,
    out_scale: Any = None,
    config: Config | None = None,
) -> Any:
    """One launch: `out[m, h] = [q_nope[m, h] @ W_UK[h] | rope(q_pe[m, h])] / out_scale`.

    Args:
        q_nope: `(M, H, K)` bfloat16 or float16, the last dimension dense: a view of the query.
        q_pe: `(M, H, R)` likewise, R even.
        weight: from `plain_layouts.pack_plain`.
        cos_sin: `(positions, R)`, the last dimension dense: R/2 cosines, then R/2 sines.
        positions: `(M,)` integers, rows of `cos_sin`; they are not checked against its length.
        style: which numbers turn together; the result keeps the order of `q_pe`.
        out: `(M, H, N + R)`, any strides with a dense last dimension, 16 bits or float8_e4m3fn; a
            new one of the type of `q_nope` where `None`.
        out_scale: one float32 on the device; e4m3 saturates at +-448. `None` = 1.
        config: one of `space`; `None` = the rule's.

    Raises:
        UsageError: sizes that do not fit; operands on a CPU without Triton's interpreter.
    """
    heads, reduction, columns = weight.codes.shape
    nope = with_heads(q_nope, "q_nope", (None, heads, reduction))
    weight.check_meets(nope)
    rows, rotated = nope.shape[0], q_pe.shape[-1]
    pe = with_heads(q_pe, "q_pe", (rows, heads, None))
    if rotated % 2 or tuple(cos_sin.shape[1:]) != (rotated,) or cos_sin.stride(1) != 1:
        raise UsageError(
            f"q_pe has {rotated} numbers a head, cos_sin is {tuple(cos_sin.shape)}.",
            "R is even, and cos_sin a dense (positions, R): cosines, then sines.",
        )
    if tuple(positions.shape) != (rows,) or (rows > 1 and positions.stride(0) != 1):
        raise UsageError(
            f"positions is {tuple(positions.shape)}.", f"It must be a dense ({rows},)."
        )
    if out is None:
        out = q_nope.new_empty((rows, heads, columns + rotated))
    query = with_heads(out, "out", (rows, heads, columns + rotated))
    if not rows * heads:
        return out
    check_can_launch(absorb_and_rotate, nope, weight.codes)
    if config is None:
        workload = Workload(Op.BMM, heads, rows, reduction, columns, "q_absorb")
        config = default_config(workload, capability_of(weight.codes))
    tiles = -(-columns // int(config["BLOCK_N"]))
    scaled = weight.scales is not None
    even = reduction % int(config["BLOCK_K"]) == 0 and columns % int(config["BLOCK_N"]) == 0
    absorb_and_rotate[(tiles + 1, heads, -(-rows // int(config["BLOCK_M"])))](
        nope,
        pe,
        weight.codes,
        weight.scales if scaled else weight.codes,
        cos_sin,
        positions,
        weight.codes if out_scale is None else out_scale,
        query,
        rows,
        columns,
        reduction,
        rotated // 2,
        nope.stride(0),
        nope.stride(1),
        pe.stride(0),
        pe.stride(1),
        weight.codes.stride(0),
        columns,
        columns if scaled else 0,
        cos_sin.stride(0),
        query.stride(0),
        query.stride(1),
        SCALED=scaled,
        SCALED_OUT=out_scale is not None,
        INTERLEAVED=style is RopeStyle.INTERLEAVED,
        EVEN=even,
        BLOCK_R=next_power_of_2(max(rotated // 2, 1)),
        **config,
    )
    return out
