"""Triton kernels of the truth suite: one name per measured kernel, shared bodies inlined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _store(c_ptr, acc, offs_m, offs_n, M, N):
    ptr = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(ptr, acc.to(tl.bfloat16), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def _bf16(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    om = tl.program_id(1) * BM + tl.arange(0, BM)
    on = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        ok = k0 + tl.arange(0, BK)
        x = tl.load(a + om[:, None] * K + ok[None, :], mask=om[:, None] < M, other=0.0)
        y = tl.load(w + ok[:, None] * N + on[None, :])
        acc = tl.dot(x, y, acc)
    _store(c, acc, om, on, M, N)


@triton.jit
def _w8(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """int8 weights, converted to bf16 before the dot."""
    om = tl.program_id(1) * BM + tl.arange(0, BM)
    on = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        ok = k0 + tl.arange(0, BK)
        x = tl.load(a + om[:, None] * K + ok[None, :], mask=om[:, None] < M, other=0.0)
        y = tl.load(w + ok[:, None] * N + on[None, :]).to(tl.bfloat16)
        acc = tl.dot(x, y, acc)
    acc = acc * tl.load(s + on)[None, :]
    _store(c, acc, om, on, M, N)


@triton.jit
def _w4(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Two int4 per byte: rows k and k + BK/2 of a block share a byte; a scale per block of K."""
    om = tl.program_id(1) * BM + tl.arange(0, BM)
    on = tl.program_id(0) * BN + tl.arange(0, BN)
    half: tl.constexpr = BK // 2
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        ok = k0 + tl.arange(0, half)
        xa = a + om[:, None] * K + ok[None, :]
        lo_x = tl.load(xa, mask=om[:, None] < M, other=0.0)
        hi_x = tl.load(xa + half, mask=om[:, None] < M, other=0.0)
        rows = k0 // 2 + tl.arange(0, half)
        q = tl.load(w + rows[:, None] * N + on[None, :])
        sc = tl.load(s + (k0 // BK) * N + on)[None, :]
        lo = (((q & 15).to(tl.int8) - 8).to(tl.float32) * sc).to(tl.bfloat16)
        hi = (((q >> 4).to(tl.int8) - 8).to(tl.float32) * sc).to(tl.bfloat16)
        acc = tl.dot(lo_x, lo, acc)
        acc = tl.dot(hi_x, hi, acc)
    _store(c, acc, om, on, M, N)


@triton.jit
def _w4gptq(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Eight int4 per int32 word along K, every word loaded for each of its rows (GPTQ style)."""
    om = tl.program_id(1) * BM + tl.arange(0, BM)
    on = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        ok = k0 + tl.arange(0, BK)
        x = tl.load(a + om[:, None] * K + ok[None, :], mask=om[:, None] < M, other=0.0)
        q = tl.load(w + (ok // 8)[:, None] * N + on[None, :])
        sc = tl.load(s + (k0 // BK) * N + on)[None, :]
        v = (q >> ((ok % 8) * 4)[:, None]) & 15
        y = ((v - 8).to(tl.float32) * sc).to(tl.bfloat16)
        acc = tl.dot(x, y, acc)
    _store(c, acc, om, on, M, N)


@triton.jit
def t_w4a16_m16_l2(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w4(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_w4a16_m16_big(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w4(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_w4a16_m64(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w4(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_w4a16_m256(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w4(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_gptq_m16(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w4gptq(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_gptq_m128(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w4gptq(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_w8a16_m16(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w8(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_w8a16_m128(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _w8(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_bf16_m16(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _bf16(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_bf16_m64(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _bf16(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_bf16_m256(a, w, s, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _bf16(a, w, s, c, M, N, K, BM, BN, BK)


@triton.jit
def t_w4a16_gemv(a, w, s, c, M, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """GEMV: w is [N, K/2] bytes; unpack, multiply, sum over K with FMA."""
    on = tl.program_id(0) * BN + tl.arange(0, BN)
    half: tl.constexpr = BK // 2
    acc = tl.zeros((BN, half), tl.float32)
    for k0 in range(0, K, BK):
        ok = k0 + tl.arange(0, half)
        lo_x = tl.load(a + ok).to(tl.float32)
        hi_x = tl.load(a + ok + half).to(tl.float32)
        cols = k0 // 2 + tl.arange(0, half)
        q = tl.load(w + on[:, None] * (K // 2) + cols[None, :])
        acc += ((q & 15).to(tl.int8) - 8).to(tl.float32) * lo_x[None, :]
        acc += ((q >> 4).to(tl.int8) - 8).to(tl.float32) * hi_x[None, :]
    y = tl.sum(acc, axis=1) * tl.load(s + on)
    tl.store(c + on, y.to(tl.bfloat16))


@triton.jit
def t_softmax_rows(x, y, n_cols, BLOCK: tl.constexpr):
    """One program per row; one read, one write of fp32."""
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * n_cols + o, mask=o < n_cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * n_cols + o, e / tl.sum(e, axis=0), mask=o < n_cols)


@triton.jit
def t_rmsnorm_rows(x, y, n_cols, BLOCK: tl.constexpr):
    """One program per row, bf16 in and out."""
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + row * n_cols + o, mask=o < n_cols, other=0.0).to(tl.float32)
    r = v * tl.rsqrt(tl.sum(v * v, axis=0) / n_cols + 1e-6)
    tl.store(y + row * n_cols + o, r.to(tl.bfloat16), mask=o < n_cols)


@triton.jit
def t_copy_bf16(x, y, n, BLOCK: tl.constexpr):
    """Plain copy."""
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)


@triton.jit
def t_add_tiny(x, y, n, BLOCK: tl.constexpr):
    """One program."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1.0, mask=o < n)


@triton.jit
def t_gather_rows4(x, idx, y, n, BLOCK: tl.constexpr):
    """Random 2-byte elements of a large table."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = tl.load(idx + o, mask=o < n, other=0)
    tl.store(y + o, tl.load(x + i.to(tl.int64), mask=o < n), mask=o < n)


@triton.jit
def t_colread_bf16(x, y, n_rows, stride, BLOCK: tl.constexpr):
    """Sums one column per program: each lane another row, 2 bytes used of a sector."""
    col = tl.program_id(0) * 64
    acc = tl.zeros((BLOCK,), tl.float32)
    for r in range(0, n_rows, BLOCK):
        o = r + tl.arange(0, BLOCK)
        acc += tl.load(x + o.to(tl.int64) * stride + col).to(tl.float32)
    tl.store(y + tl.program_id(0), tl.sum(acc, axis=0))


@triton.jit
def t_atomic_hot(x, y, n, BLOCK: tl.constexpr):
    """Every element is added to one address."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    tl.atomic_add(y + o * 0, v, mask=o < n)


@triton.jit
def t_exp_chain(x, y, n, steps, BLOCK: tl.constexpr):
    """Chains of exp2: special-function unit."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    for _ in range(0, steps):
        v = tl.exp2(v * -0.5)
    tl.store(y + o, v, mask=o < n)


@triton.jit
def t_l2_reread(x, y, n, passes, BLOCK: tl.constexpr):
    """Every program sweeps the same 4 MiB region past L1, starting elsewhere."""
    acc = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0) * BLOCK * 7
    for i in range(0, passes):
        o = (start + i * BLOCK + tl.arange(0, BLOCK)) % n
        o = tl.max_contiguous(tl.multiple_of(o, BLOCK), BLOCK)
        acc += tl.load(x + o, cache_modifier=".cg")
    tl.store(y + tl.program_id(0), tl.sum(acc, axis=0))


@dataclass(frozen=True)
class Spec:
    """How to launch a kernel: args(device) -> positional arguments."""

    fn: Any
    args: Callable[[str], list[Any]]
    grid: tuple[int, ...]
    constexprs: dict[str, int]
    num_warps: int = 4
    num_stages: int = 3
    extra: dict[str, Any] = field(default_factory=dict)


def _rand(device: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.rand(shape, device=device, dtype=torch.float32).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, device=device, dtype=dtype)


def _gemm(
    fn: Any,
    kind: str,
    m: int,
    n: int,
    k: int,
    bm: int,
    bn: int,
    bk: int,
    warps: int = 4,
    stages: int = 3,
) -> Spec:
    def args(d: str) -> list[Any]:
        a = _rand(d, torch.bfloat16, m, k)
        c = torch.empty((m, n), device=d, dtype=torch.bfloat16)
        s = _rand(d, torch.float32, k // bk, n)
        shapes = {
            "bf16": (torch.bfloat16, (k, n)),
            "w8": (torch.int8, (k, n)),
            "w4": (torch.uint8, (k // 2, n)),
            "gptq": (torch.int32, (k // 8, n)),
        }
        dtype, shape = shapes[kind]
        return [a, _rand(d, dtype, *shape), s, c, m, n, k]

    grid = (n // bn, -(-m // bm))
    return Spec(fn, args, grid, {"BM": bm, "BN": bn, "BK": bk}, warps, stages)


def _gemv(n: int, k: int, bn: int, bk: int) -> Spec:
    def args(d: str) -> list[Any]:
        return [
            _rand(d, torch.bfloat16, k),
            _rand(d, torch.uint8, n, k // 2),
            _rand(d, torch.float32, n),
            torch.empty(n, device=d, dtype=torch.bfloat16),
            1,
            n,
            k,
        ]

    return Spec(t_w4a16_gemv, args, (n // bn,), {"BN": bn, "BK": bk})


def _unary(
    fn: Any,
    dtype: torch.dtype,
    n: int,
    block: int,
    *scalars: int,
    out: int | None = None,
    grid: int | None = None,
    warps: int = 4,
) -> Spec:
    def args(d: str) -> list[Any]:
        y = torch.zeros(out or n, device=d, dtype=torch.float32 if out else dtype)
        return [_rand(d, dtype, n), y, *scalars]

    return Spec(fn, args, (grid or -(-n // block),), {"BLOCK": block}, warps)


def _gather(table: int, n: int, block: int) -> Spec:
    def args(d: str) -> list[Any]:
        idx = torch.randint(0, table, (n,), device=d, dtype=torch.int32)
        return [
            _rand(d, torch.bfloat16, table),
            idx,
            torch.empty(n, device=d, dtype=torch.bfloat16),
            n,
        ]

    return Spec(t_gather_rows4, args, (n // block,), {"BLOCK": block})


F32, BF16 = torch.float32, torch.bfloat16
SPECS: dict[str, Spec] = {
    "t_w4a16_m16_l2": _gemm(t_w4a16_m16_l2, "w4", 16, 4096, 4096, 16, 64, 128),
    "t_w4a16_m16_big": _gemm(t_w4a16_m16_big, "w4", 16, 16384, 16384, 16, 128, 128),
    "t_w4a16_m64": _gemm(t_w4a16_m64, "w4", 64, 8192, 8192, 64, 64, 128),
    "t_w4a16_m256": _gemm(t_w4a16_m256, "w4", 256, 8192, 4096, 128, 128, 64, 8),
    "t_gptq_m16": _gemm(t_gptq_m16, "gptq", 16, 8192, 4096, 16, 64, 128),
    "t_gptq_m128": _gemm(t_gptq_m128, "gptq", 128, 4096, 4096, 64, 64, 64),
    "t_w8a16_m16": _gemm(t_w8a16_m16, "w8", 16, 8192, 4096, 16, 64, 128),
    "t_w8a16_m128": _gemm(t_w8a16_m128, "w8", 128, 8192, 4096, 128, 64, 64),
    "t_bf16_m16": _gemm(t_bf16_m16, "bf16", 16, 4096, 4096, 16, 64, 128),
    "t_bf16_m64": _gemm(t_bf16_m64, "bf16", 64, 8192, 8192, 64, 64, 128),
    "t_bf16_m256": _gemm(t_bf16_m256, "bf16", 256, 8192, 4096, 128, 128, 64, 8),
    "t_w4a16_gemv": _gemv(8192, 8192, 16, 512),
    "t_softmax_rows": _unary(t_softmax_rows, F32, 16384 * 4096, 4096, 4096, grid=16384, warps=8),
    "t_rmsnorm_rows": _unary(t_rmsnorm_rows, BF16, 32768 * 4096, 4096, 4096, grid=32768),
    "t_copy_bf16": _unary(t_copy_bf16, BF16, 1 << 27, 1024, 1 << 27),
    "t_add_tiny": _unary(t_add_tiny, F32, 256, 256, 256),
    "t_gather_rows4": _gather(1 << 28, 1 << 22, 1024),
    "t_colread_bf16": _unary(
        t_colread_bf16, BF16, 8192 * 16384, 256, 8192, 16384, out=256, grid=256
    ),
    "t_atomic_hot": _unary(t_atomic_hot, F32, 1 << 19, 1024, 1 << 19, out=32, grid=512),
    "t_exp_chain": _unary(t_exp_chain, F32, 1 << 20, 1024, 1 << 20, 512),
    "t_l2_reread": _unary(
        t_l2_reread, F32, 1 << 20, 1024, 1 << 20, 512, out=1056, grid=1056, warps=8
    ),
}


def launcher(name: str, device: str = "cuda") -> Callable[[], None]:
    """Allocate the arguments of a kernel and return a function that launches it once."""
    spec = SPECS[name]
    args = spec.args(device)

    def go() -> None:
        spec.fn[spec.grid](
            *args, **spec.constexprs, num_warps=spec.num_warps, num_stages=spec.num_stages
        )

    return go


def compile_static(name: str) -> str:
    """Compile a kernel for sm_90 without a GPU; returns registers/shared memory in words."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = SPECS[name]
    types = {
        F32: "*fp32",
        BF16: "*bf16",
        torch.int8: "*i8",
        torch.uint8: "*u8",
        torch.int32: "*i32",
    }
    names = spec.fn.arg_names
    values = spec.args("meta")
    sig = {k: "constexpr" if k in spec.constexprs else "i32" for k in names}
    sig |= {
        k: types[v.dtype]
        for k, v in zip(names, values, strict=False)
        if isinstance(v, torch.Tensor)
    }
    attrs = {
        (i,): [["tt.divisibility", 16]]
        for i, v in enumerate(values)
        if isinstance(v, torch.Tensor) or v % 16 == 0
    }
    scalars_one = {
        k: 1 for k, v in zip(names, values, strict=False) if isinstance(v, int) and v == 1
    }
    sig |= dict.fromkeys(scalars_one, "constexpr")
    src = ASTSource(spec.fn, sig, {**spec.constexprs, **scalars_one}, attrs)
    out = triton.compile(
        src,
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": spec.num_warps, "num_stages": spec.num_stages},
    )
    return f"shared {out.metadata.shared}, cubin {len(out.asm['cubin'])} B"


if __name__ == "__main__":
    for _name in SPECS:
        print(_name, compile_static(_name), flush=True)
