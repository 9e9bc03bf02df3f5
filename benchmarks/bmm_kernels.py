"""Plain Triton bmm with low-bit weights, K whole in one tile: what the grid of times compares.

Weights `[H, K, N]` with a scale per head and column; int4 keeps rows k and k + K/2 in one byte.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernel_compass.measurement.subject import Subject


@triton.jit
def _offsets(M, N, BM: tl.constexpr, BN: tl.constexpr):
    om = tl.program_id(1) * BM + tl.arange(0, BM)
    on = tl.program_id(0) * BN + tl.arange(0, BN)
    return om, on


@triton.jit
def _store(c, acc, scale, om, on, M, N):
    h = tl.program_id(2)
    s = tl.load(scale + h * N + on)
    ptr = c + (h * M + om[:, None]).to(tl.int64) * N + on[None, :]
    tl.store(ptr, (acc * s[None, :]).to(tl.bfloat16), mask=om[:, None] < M)


@triton.jit
def w8(a, w, scale, c, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Weights of one byte (e4m3 or int8), converted to bf16 before the product."""
    h = tl.program_id(2).to(tl.int64)
    om, on = _offsets(M, N, BM, BN)
    ok = tl.arange(0, K)
    x = tl.load(a + (h * M + om[:, None]) * K + ok[None, :], mask=om[:, None] < M, other=0.0)
    y = tl.load(w + (h * K + ok[:, None]) * N + on[None, :]).to(tl.float32).to(tl.bfloat16)
    _store(c, tl.dot(x, y), scale, om, on, M, N)


@triton.jit
def w4(a, w, scale, c, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Two weights a byte, each half of K a product of its own."""
    h = tl.program_id(2).to(tl.int64)
    om, on = _offsets(M, N, BM, BN)
    half: tl.constexpr = K // 2
    ok = tl.arange(0, half)
    left = a + (h * M + om[:, None]) * K + ok[None, :]
    x0 = tl.load(left, mask=om[:, None] < M, other=0.0)
    x1 = tl.load(left + half, mask=om[:, None] < M, other=0.0)
    q = tl.load(w + (h * half + ok[:, None]) * N + on[None, :])
    y0 = ((q & 15).to(tl.int8) - 8).to(tl.float32).to(tl.bfloat16)
    y1 = ((q >> 4).to(tl.int8) - 8).to(tl.float32).to(tl.bfloat16)
    acc = tl.dot(x1, y1, tl.dot(x0, y0))
    _store(c, acc, scale, om, on, M, N)


def tile(tokens: int) -> tuple[int, int]:
    """Rows and columns of a program's tile."""
    return (16, 64) if tokens <= 16 else (64, 64)


def subject(precision: str, heads: int, tokens: int, k: int, n: int) -> Subject:
    """One product in `bf16` (cuBLAS), `w8a16` (e4m3 weights) or `w4a16`, on random data."""
    a = torch.randn(heads, tokens, k, device="cuda").to(torch.bfloat16)
    if precision == "bf16":
        w = torch.randn(heads, k, n, device="cuda").to(torch.bfloat16)
        return Subject(lambda w, a: torch.bmm(a, w), (w,), (a,))
    scale = torch.rand(heads, n, device="cuda") + 0.5
    c = torch.full((heads, tokens, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    bm, bn = tile(tokens)
    grid = (n // bn, -(-tokens // bm), heads)
    if precision == "w8a16":
        w = torch.randn(heads, k, n, device="cuda").to(torch.float8_e4m3fn)
        kernel = w8
    else:
        w = torch.randint(0, 256, (heads, k // 2, n), dtype=torch.uint8, device="cuda")
        kernel = w4

    def run(w, scale, a, c):
        kernel[grid](a, w, scale, c, tokens, n, K=k, BM=bm, BN=bn, num_warps=4)
        return c

    return Subject(run, (w, scale), (a,), (c,))


def reference(s: Subject) -> torch.Tensor:
    """The same product in float64."""
    if not s.outputs:
        return torch.bmm(s.resident[0].double(), s.streamed[0].double())
    w, scale = s.streamed
    if w.dtype == torch.uint8:
        w = torch.cat([(w & 15).double() - 8, (w >> 4).double() - 8], dim=1)
    return torch.bmm(s.resident[0].double(), w.double() * scale.double()[:, None, :])


def relative_error(s: Subject) -> float:
    """Frobenius norm of the error over that of the reference."""
    found, wanted = s.first_call().double(), reference(s)
    return float((found - wanted).norm() / wanted.norm())
