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
from kernel_compass.kernels.plain_layouts import next_power_of_2, with_heads
from kernel_compass.kernels.quantize_rows import launch_quantize_rows
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.rounding import narrowed
from kernel_compass.kernels.w8a8 import load_tile, multiply
from kernel_compass.records.contracts import Config, Prepared
from kernel_compass.records.workload import Workload

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
    row_tiles = tl.cdiv(M, BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    first_m = ((tl.program_id(0) % row_tiles) * BLOCK_M).to(tl.int64)
    first_n = ((tl.program_id(0) // row_tiles) * BLOCK_N).to(tl.int64)
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
    rows = m < M - first_m
    columns = n < N - first_n
    scale = tl.load(a_scales + head * M + first_m + m, mask=rows, other=0.0)
    w_scale = tl.load(w_scales + head * stride_sh + first_n + n, mask=columns, other=0.0)
    y = total.to(tl.float32) * w_scale.to(tl.float32)[None, :] * scale[:, None]
    at = out + head * stride_oh + (first_m + m)[:, None] * stride_om + (first_n + n)[None, :]
    inside = rows[:, None] & columns[None, :]
    tl.store(at, narrowed(y, out.dtype.element_ty), mask=inside)


def default_config(workload: Workload, _capability: tuple[int, int] | None) -> Config:
    """The study's rule: rows rounded up to 16 ... 128, 64 columns or 128 where there are many."""
    rows = min(max(next_power_of_2(workload.tokens), 16), 128)
    return _config(rows, 128 if workload.columns >= 2048 else 64)


def _config(rows: int, columns: int) -> Config:
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 128}
    return {**sizes, "num_warps": 8 if rows * columns > 8192 else 4, "num_stages": 3}


def space(workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
    """What the study tuned over, 64 or 128 columns, the default first."""
    default = default_config(workload, capability)
    rows = int(default["BLOCK_M"])
    return [default, *(c for c in (_config(rows, 64), _config(rows, 128)) if c != default)]


def pack(weight: QuantizedWeight) -> tuple[Any, ...]:
    """As `kernels.w8a8.pack`."""
    return w8a8.pack(weight)


def run(prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
    """Two launches; operands as `kernels.w8a8.run`."""
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
    int8 = not codes.dtype.is_floating_point
    x_codes = torch.empty((heads, rows, reduction), dtype=codes.dtype, device=a.device)
    x_scales = torch.empty((heads, rows), dtype=torch.float32, device=a.device)
    launch_quantize_rows(x, x_codes, x_scales)
    tiles = -(-rows // int(config["BLOCK_M"])) * -(-columns // int(config["BLOCK_N"]))
    matrix_product[(tiles, heads)](
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
        INT8=int8,
        **config,
    )
    return out
