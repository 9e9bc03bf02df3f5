"""The first study's kernel for int4 weights, written anew from its description. Needs triton.

A plain W4A16 product: the tile of a 16-bit kernel, every nibble fetched by its own byte load,
shifted, converted, scaled, and multiplied by `tl.dot`. It is kept as the kernel whose measurements
this project began with, not for its speed: the tile holds a quarter of the bytes of a 16-bit one,
so that too few are in flight, and unpacking costs more instructions than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_compass.kernels.plain_layouts import next_power_of_2, scales_of, with_heads
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.rounding import multiplicand, narrowed
from kernel_compass.records.contracts import Config, Prepared
from kernel_compass.records.number_format import Code
from kernel_compass.records.workload import Workload

CAPABILITIES = {Code.INT4: (8, 0)}
LONGEST_REDUCTION = {Code.INT4: 2**31 - 1}


@triton.jit(do_not_specialize=["M"])
def matrix_product(
    a,
    packed,
    scales,
    zeros,
    out,
    M,
    N,
    K,
    GROUP,
    stride_ah,
    stride_am,
    stride_wh,
    stride_sh,
    stride_oh,
    stride_om,
    HAS_ZEROS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of one head a program; `packed [K/2, N]`, even k in the low half of a byte."""
    row_tiles = tl.cdiv(M, BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    first_m = ((tl.program_id(0) % row_tiles) * BLOCK_M).to(tl.int64)
    n = (tl.program_id(0) // row_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.arange(0, BLOCK_M)
    a += head * stride_ah + first_m * stride_am
    packed += head * stride_wh
    scales += head * stride_sh
    zeros += head * stride_sh
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in tl.range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        inside = (k[:, None] < K) & (n[None, :] < N)
        pair = (k // 2).to(tl.int64)[:, None] * N + n[None, :]
        byte = tl.load(packed + pair, mask=inside, other=0)
        code = (byte >> ((k % 2) * 4).to(tl.uint8)[:, None]) & 0xF
        # The scale's offset may pass 2^31 no sooner than the packed weight's.
        group = (k // GROUP).to(tl.int64)[:, None] * N + n[None, :]
        scale = tl.load(scales + group, mask=inside, other=0.0).to(tl.float32)
        if HAS_ZEROS:
            zero = tl.load(zeros + group, mask=inside, other=0).to(tl.float32)
        else:
            zero = 8.0
        weight = (code.to(tl.float32) - zero) * scale
        x = tl.load(
            a + m[:, None] * stride_am + k[None, :],
            mask=(m[:, None] < M - first_m) & (k[None, :] < K),
            other=0.0,
        )
        like: tl.constexpr = a.dtype.element_ty
        total = tl.dot(multiplicand(x, like), multiplicand(narrowed(weight, like), like), total)
    at = out + head * stride_oh + (first_m + m)[:, None] * stride_om + n[None, :]
    inside = (m[:, None] < M - first_m) & (n[None, :] < N)
    tl.store(at, narrowed(total, out.dtype.element_ty), mask=inside)


def default_config(workload: Workload, _capability: tuple[int, int] | None) -> Config:
    """The study's rule: rows rounded up to 16 ... 128, 64 columns or 128 where there are many."""
    rows = min(max(next_power_of_2(workload.tokens), 16), 128)
    return _config(rows, 128 if workload.columns >= 2048 else 64)


def _config(rows: int, columns: int) -> Config:
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 64}
    return {**sizes, "num_warps": 8 if rows * columns > 8192 else 4, "num_stages": 3}


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """What the study tuned over, 64 or 128 columns, the default first."""
    default = default_config(workload, capability)
    rows = int(default["BLOCK_M"])
    return [default, *(c for c in (_config(rows, 64), _config(rows, 128)) if c != default)]


def pack(weight: QuantizedWeight) -> tuple[Any, ...]:
    """`packed (H, K/2, N)` rounded up, two codes along K a byte; `scales (H, G, N)`; and, where
    the format has them, `zeros (H, G, N)` as bytes."""
    codes = weight.codes.to(torch.uint8)
    if weight.reduction % 2:
        codes = torch.nn.functional.pad(codes, (0, 0, 0, 1))
    packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).contiguous()
    kept = () if weight.zeros is None else (weight.zeros.contiguous(),)
    return packed, scales_of(weight).contiguous(), *kept


def run(prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
    """One launch; operands as `kernels.w8a8.run`, `a` bfloat16 or float16."""
    packed, scales, *zeros = streamed
    heads, _, columns = packed.shape
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
        packed,
        scales,
        zeros[0] if zeros else scales,
        y,
        rows,
        columns,
        reduction,
        prepared.format.group or reduction,
        x.stride(0),
        x.stride(1),
        packed.stride(0),
        scales.stride(0),
        y.stride(0),
        y.stride(1),
        HAS_ZEROS=bool(zeros),
        **config,
    )
    return out
