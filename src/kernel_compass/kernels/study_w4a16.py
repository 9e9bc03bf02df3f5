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

from kernel_compass.kernels.device_tiles import load_tile, store_tile, tile_place
from kernel_compass.kernels.launching import check_can_launch
from kernel_compass.kernels.plain_layouts import scales_of, with_output
from kernel_compass.kernels.plain_tiles import tile_grid
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.rounding import multiplicand, narrowed
from kernel_compass.kernels.study_tiles import StudyTiles
from kernel_compass.records.contracts import Prepared
from kernel_compass.records.number_format import Code

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
    head, first_m, first_n = tile_place(M, BLOCK_M, BLOCK_N)
    n = first_n.to(tl.int32) + tl.arange(0, BLOCK_N)
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
        x = load_tile(a, m, k, stride_am, M - first_m, K, False)
        like: tl.constexpr = a.dtype.element_ty
        total = tl.dot(multiplicand(x, like), multiplicand(narrowed(weight, like), like), total)
    out += head * stride_oh + first_m * stride_om
    store_tile(out, total, m, n, stride_om, M - first_m, N)


_TILES = StudyTiles(depth=64)
default_config = _TILES.default_config
space = _TILES.space


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
    x, y, out = with_output(a, out, (heads, reduction, columns))
    if not y.numel():
        return out
    check_can_launch(matrix_product, x, packed)
    matrix_product[tile_grid(config, y)](
        x,
        packed,
        scales,
        zeros[0] if zeros else scales,
        y,
        x.shape[1],
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
