"""The decode product in plain Triton: the fallback of `decode_gluon.py`, and its twin on a CPU.

The same packed weights, the same order of operations on them, without inline assembly: runs on
every architecture Triton knows and in its interpreter (`WIDE`, where products of bf16 are wrong
and are taken in float32 instead).
"""

from __future__ import annotations

# A parameter a line would hide the kernel behind its signature.
# fmt: off
import triton
import triton.language as tl

from kernel_compass.kernels.rounding import narrowed


@triton.jit
def _e4m3(code):
    """The float32 value of e4m3 bits: shifted into place it is value * 2^-120; exact."""
    bits = ((code & 0x80) << 24) | ((code & 0x7F) << 20)
    return bits.to(tl.float32, bitcast=True) * 1.329227995784916e36


@triton.jit
def _bf16(code):
    return ((code & 0xFFFF) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _fp16(code):
    return code.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _int8(code):
    return ((code & 0xFF) ^ 0x80).to(tl.float32) - 128.0


@triton.jit
def _values(w, CODE: tl.constexpr, FRAGMENTS: tl.constexpr, ROWS: tl.constexpr):
    """Words `(FRAGMENTS, n)` to codes `(FRAGMENTS, r, g, ROWS in packed order)`, as float32."""
    if CODE == "int4":
        w = tl.reshape(w, (FRAGMENTS, ROWS // 64, 8, 4, 2, 2))
        low = tl.join(tl.join(w & 15, w >> 4 & 15), tl.join(w >> 8 & 15, w >> 12 & 15))
        high = tl.join(
            tl.join(w >> 16 & 15, w >> 20 & 15), tl.join(w >> 24 & 15, w >> 28 & 15)
        )
        # 0 F, 1 chunk, 2 g, 3 c, 4 block, 5 s, 6 h, 7 r, 8 b
        x = tl.permute(tl.join(low, high), (0, 7, 2, 1, 4, 5, 6, 3, 8)).to(tl.float32)
    elif CODE == "fp8" or CODE == "int8":
        w = tl.reshape(w, (FRAGMENTS, ROWS // 32, 8, 4, 2, 2))
        x = tl.join(tl.join(w, w >> 16), tl.join(w >> 8, w >> 24)) & 0xFF
        if CODE == "fp8":
            x = _e4m3(x)
        else:
            x = _int8(x)
        # 0 F, 1 chunk, 2 g, 3 c, 4 s, 5 h, 6 b, 7 r
        x = tl.permute(x, (0, 7, 2, 1, 4, 5, 3, 6))
    else:
        w = tl.reshape(w, (FRAGMENTS, ROWS // 16, 8, 4, 2, 2))
        x = tl.join(w, w >> 16)
        if CODE == "bf16":
            x = _bf16(x)
        else:
            x = _fp16(x)
        # 0 F, 1 step, 2 g, 3 c, 4 h, 5 r, 6 b
        x = tl.permute(x, (0, 5, 2, 1, 4, 3, 6))
    return tl.reshape(x, (FRAGMENTS * 16, ROWS))


@triton.jit(do_not_specialize=["M", "STEPS"])
def decode_plain(a, words, scale, zero, out, M, N, K, F, UNITS, a_h, a_m, o_h, o_m, STEPS,
                 CODE: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr,
                 FRAGMENTS: tl.constexpr, RUN: tl.constexpr, ROWS: tl.constexpr,
                 MP: tl.constexpr, WIDE: tl.constexpr):
    """One head, `FRAGMENTS` fragments of 16 columns, `MP` tokens; `ROWS` of K a step."""
    PER: tl.constexpr = ROWS * 128 // (16 if CODE == "bf16" or CODE == "fp16" else
                                       (64 if CODE == "int4" else 32))
    h = tl.program_id(1).to(tl.int64)
    f = tl.program_id(0) * FRAGMENTS + tl.arange(0, FRAGMENTS)
    m = tl.program_id(2) * MP + tl.arange(0, MP)
    words += h * F * UNITS
    slot = tl.arange(0, FRAGMENTS * 16)
    fragment = tl.program_id(0) * FRAGMENTS + slot // 16
    n = (fragment // RUN * (16 * RUN) + slot % 8 * (2 * RUN) + fragment % RUN * 2
         + slot // 8 % 2)
    # Rows of K in packed order: block, s, h, c, b.
    p = tl.arange(0, ROWS)
    k = p // 32 * 32 + p // 2 % 4 * 8 + p // 16 % 2 * 4 + p // 8 % 2 * 2 + p % 2
    col = tl.arange(0, PER)
    PARTS: tl.constexpr = (ROWS // GROUP if GROUP < ROWS else 1) if GROUP > 0 else 1
    groups = 1
    if GROUP > 0:
        groups = tl.cdiv(K, GROUP)
    acc = tl.zeros((FRAGMENTS * 16, MP), tl.float32)
    for step in range(STEPS):
        here = words + f[:, None] * UNITS + step * PER + col[None, :]
        inside = (f[:, None] < F) & (step * PER + col[None, :] < UNITS)
        v = _values(tl.load(here, mask=inside, other=0), CODE, FRAGMENTS, ROWS)
        row = step * ROWS + k
        x = tl.load(a + h * a_h + m[None, :] * a_m + row[:, None],
                    mask=(m[None, :] < M) & (row[:, None] < K), other=0.0)
        # A step has rows of one group, or whole groups: each is a product of its own.
        for part in tl.static_range(PARTS):
            first = step * ROWS + part * (ROWS // PARTS)
            g = 0
            if GROUP > 0:
                g = first // GROUP
            u = v
            if CODE == "int4":
                if ZEROS:
                    z = tl.load(zero + (h * groups + g) * N + n, mask=(n < N) & (first < K),
                                other=0)
                    u = v - z.to(tl.float32)[:, None]
                else:
                    u = v - 8.0
            if PARTS > 1:
                u = tl.where((k // GROUP == part)[None, :], u, 0.0)
            if WIDE:
                total = tl.dot(u, x.to(tl.float32), input_precision="ieee")
            else:
                total = tl.dot(u.to(x.dtype), x)
            if GROUP > 0:
                s = tl.load(scale + (h * groups + g) * N + n, mask=(n < N) & (first < K),
                            other=0.0)
                total = total * s.to(tl.float32)[:, None]
            acc += total
    if GROUP == 0 and CODE != "bf16" and CODE != "fp16":
        s = tl.load(scale + h * N + n, mask=n < N, other=0.0)
        acc = acc * s.to(tl.float32)[:, None]
    tl.store(out + h * o_h + m[None, :] * o_m + n[:, None], narrowed(acc, out.dtype.element_ty),
             mask=(n[:, None] < N) & (m[None, :] < M))
