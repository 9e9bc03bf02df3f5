"""Decode-size products in Gluon: weights go from memory to the matrix unit by registers alone.

The weight is the left operand, so its columns are the unit's rows and the tokens its columns. A
warp's 16-byte loads of `fragments.py`'s layout are the operand itself; a conversion in registers
makes bf16 of the codes. Two kernels share it:

`decode_mma`    up to 16 tokens a program, activations in registers; warps may split K, their sums
                meet in shared memory in a fixed order.
`decode_wgmma`  8 to 64 tokens a program, activations in shared memory, read by the warpgroup unit.

Gluon's names change between releases of Triton; `decode.py` has the same product in plain Triton.
"""

from __future__ import annotations

# A parameter a line would hide the kernels behind their signatures.
# fmt: off
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

# Four nibbles of either half, at 0x43: 128 + n in bf16, exactly. Nibble 2 r + h.
_NIBBLES = gl.constexpr("""{
.reg .b32 s1, s2, s3;
lop3.b32 $0, $4, 0x000f000f, 0x43004300, 0xEA;
shr.u32 s1, $4, 4;
lop3.b32 $1, s1, 0x000f000f, 0x43004300, 0xEA;
shr.u32 s2, $4, 8;
lop3.b32 $2, s2, 0x000f000f, 0x43004300, 0xEA;
shr.u32 s3, $4, 12;
lop3.b32 $3, s3, 0x000f000f, 0x43004300, 0xEA;
}""")
# The same less 136: the value of a symmetric int4 code.
_NIBBLES_LESS_136 = gl.constexpr("""{
.reg .b32 s1, s2, s3, t0, t1, t2, t3, z;
mov.b32 z, 0x43084308;
lop3.b32 t0, $4, 0x000f000f, 0x43004300, 0xEA;
shr.u32 s1, $4, 4;
lop3.b32 t1, s1, 0x000f000f, 0x43004300, 0xEA;
shr.u32 s2, $4, 8;
lop3.b32 t2, s2, 0x000f000f, 0x43004300, 0xEA;
shr.u32 s3, $4, 12;
lop3.b32 t3, s3, 0x000f000f, 0x43004300, 0xEA;
sub.rn.bf16x2 $0, t0, z;
sub.rn.bf16x2 $1, t1, z;
sub.rn.bf16x2 $2, t2, z;
sub.rn.bf16x2 $3, t3, z;
}""")
# e4m3 to bf16: exponent and mantissa shifted into place are value * 2^-120 (subnormals too), and
# the product with 2^120 is exact.
_E4M3 = gl.constexpr("""{
.reg .b32 a, b, d, x, y, p;
mov.b32 p, 0x7b807b80;
shl.b32 a, $2, 8;
and.b32 a, a, 0x80008000;
shl.b32 b, $2, 4;
lop3.b32 x, b, 0x07f007f0, a, 0xEA;
and.b32 d, $2, 0x80008000;
shr.u32 b, $2, 4;
lop3.b32 y, b, 0x07f007f0, d, 0xEA;
mul.rn.bf16x2 $0, x, p;
mul.rn.bf16x2 $1, y, p;
}""")
# Two 16-bit numbers are already in place.
_PAIR = gl.constexpr("mov.b32 $0, $1; // $2")
# (128 + low seven bits) - (128 or 256): exact in bf16 for all of -128 ... 127.
_INT8 = gl.constexpr("""{
.reg .b32 w1, p, q;
shr.u32 w1, $2, 8;
lop3.b32 p, $2, 0x007f007f, 0x43004300, 0xEA;
lop3.b32 q, $2, 0x00800080, 0x43004300, 0xEA;
sub.rn.bf16x2 $0, p, q;
lop3.b32 p, w1, 0x007f007f, 0x43004300, 0xEA;
lop3.b32 q, w1, 0x00800080, 0x43004300, 0xEA;
sub.rn.bf16x2 $1, p, q;
}""")


@gluon.constexpr_function
def _words_of(code, rows):
    """Words of `rows` rows of one fragment."""
    return 128 * rows // {"bf16": 16, "fp16": 16, "int4": 64}.get(code, 32)


@gluon.jit
def _operand(w, CODE: gl.constexpr, EXACT: gl.constexpr, WN: gl.constexpr, R: gl.constexpr,
             WK: gl.constexpr, KS: gl.constexpr, ROWS: gl.constexpr):
    """Loaded words `(WN R, WK KS chunks 128)` to the left operand `(KS WK, R WN 16, ROWS)`."""
    if CODE == "int4":
        w = gl.reshape(w, [WN, R, WK, KS * ROWS // 64, 8, 4, 2, 2])
        w = gl.join(w, w)
        if EXACT:
            v0, v1, v2, v3 = gl.inline_asm_elementwise(
                _NIBBLES_LESS_136, "=&r,=&r,=&r,=&r,r,r", [w],
                (gl.bfloat16, gl.bfloat16, gl.bfloat16, gl.bfloat16), True, 2)
        else:
            v0, v1, v2, v3 = gl.inline_asm_elementwise(
                _NIBBLES, "=&r,=&r,=&r,=&r,r,r", [w],
                (gl.bfloat16, gl.bfloat16, gl.bfloat16, gl.bfloat16), True, 2)
        x = gl.join(gl.join(v0, v1), gl.join(v2, v3))
        # 0 WN, 1 R, 2 WK, 3 chunk, 4 g, 5 c, 6 block, 7 s, 8 b, 9 h, 10 r
        if ROWS == 32:
            x = gl.permute(x, (3, 6, 2, 1, 0, 10, 4, 7, 9, 5, 8))
        else:
            x = gl.reshape(x, [WN, R, WK, KS, ROWS // 64, 8, 4, 2, 2, 2, 2, 2])
            x = gl.permute(x, (3, 2, 1, 0, 11, 5, 4, 7, 8, 10, 6, 9))
    elif CODE == "bf16" or CODE == "fp16":
        w = gl.reshape(w, [WN, R, WK, KS, ROWS // 16, 8, 4, 2, 2])
        w = gl.join(w, w)
        if CODE == "bf16":
            x = gl.inline_asm_elementwise(_PAIR, "=r,r,r", [w], gl.bfloat16, True, 2)
        else:
            x = gl.inline_asm_elementwise(_PAIR, "=r,r,r", [w], gl.float16, True, 2)
        # ... 4 step, 5 g, 6 c, 7 h, 8 r, 9 b
        x = gl.permute(x, (3, 2, 1, 0, 8, 5, 4, 7, 6, 9))
    else:
        w = gl.reshape(w, [WN, R, WK, KS, ROWS // 32, 8, 4, 2, 2])
        w = gl.join(w, w)
        if CODE == "int8":
            v0, v1 = gl.inline_asm_elementwise(
                _INT8, "=&r,=&r,r,r", [w], (gl.bfloat16, gl.bfloat16), True, 2)
        else:
            v0, v1 = gl.inline_asm_elementwise(
                _E4M3, "=&r,=&r,r,r", [w], (gl.bfloat16, gl.bfloat16), True, 2)
        x = gl.join(v0, v1)
        # ... 4 chunk, 5 g, 6 c, 7 s, 8 h, 9 b, 10 r
        x = gl.permute(x, (3, 2, 1, 0, 10, 5, 4, 7, 8, 6, 9))
    return gl.reshape(x, [KS * WK, R * WN * 16, ROWS])


@gluon.jit
def _load_words(words, row, col, fragment, first, F, UNITS, EVEN: gl.constexpr,
                WHOLE: gl.constexpr, EV: gl.constexpr):
    """Words of fragments `fragment + row`, units `first + col` of each."""
    here = words + (fragment + gl.expand_dims(row, 1)) * UNITS + first + gl.expand_dims(col, 0)
    if EVEN and WHOLE:
        if EV == "cg":
            w = gl.load(here, cache_modifier=".cg")
        else:
            w = gl.load(here, eviction_policy=EV)
    else:
        inside = gl.expand_dims(fragment + row, 1) < F
        if not EVEN:
            inside = inside & (gl.expand_dims(first + col, 0) < UNITS)
        if EV == "cg":
            w = gl.load(here, mask=inside, other=0, cache_modifier=".cg")
        else:
            w = gl.load(here, mask=inside, other=0, eviction_policy=EV)
    return w


@gluon.jit
def _load_scale(scale, n0, N, h, COLUMNS: gl.constexpr, WHOLE: gl.constexpr,
                LAYOUT: gl.constexpr):
    """Scales of a tile's columns, in the layout in which the sums will be written; as they are
    stored: whoever converts them waits for them."""
    n = n0 + gl.arange(0, COLUMNS, layout=LAYOUT)
    if WHOLE:
        return gl.load(scale + h * N + n)
    return gl.load(scale + h * N + n, mask=n < N, other=0.0)


@gluon.jit
def _load_tokens(a, m, k, first, a_m, M, K, EVEN: gl.constexpr):
    """Rows `first + k` of tokens `m`; pairs of them where `a` is of words, as K then is."""
    here = a + gl.expand_dims(m, 1) * a_m + first + gl.expand_dims(k, 0)
    inside = gl.expand_dims(m, 1) < M
    if not EVEN:
        inside = inside & (gl.expand_dims(first + k, 0) < K)
    return gl.load(here, mask=inside, other=0)


@gluon.jit
def _halves(a, CODE: gl.constexpr):
    """Words as the pairs that they are, an axis of two more."""
    a = gl.join(a, a)
    if CODE == "fp16":
        return gl.inline_asm_elementwise(_PAIR, "=r,r,r", [a], gl.float16, True, 2)
    else:  # noqa: RET505 - without it Triton sees returns of two types
        return gl.inline_asm_elementwise(_PAIR, "=r,r,r", [a], gl.bfloat16, True, 2)


@gluon.jit
def _right(a, CODE: gl.constexpr, PAIRS: gl.constexpr, WK: gl.constexpr, KS: gl.constexpr,
           ROWS: gl.constexpr, MP: gl.constexpr, LOB: gl.constexpr):
    """Tokens `(MP, WK KS ROWS)` to the right operand `(KS WK, ROWS, MP)`, rows in packed order."""
    if PAIRS:
        a = _halves(a, CODE)
    b = gl.reshape(a, [MP, WK, KS, ROWS // 32, 4, 2, 2, 2])
    b = gl.permute(b, (2, 1, 3, 5, 6, 4, 7, 0))
    return gl.convert_layout(gl.reshape(b, [KS * WK, ROWS, MP]), LOB, assert_trivial=True)


@gluon.jit
def _column(LAYOUT: gl.constexpr, R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr):
    """Column of each accumulator row within a program's tile."""
    row = gl.arange(0, R * WN * 16, layout=LAYOUT)
    fragment = (row // 16) % WN * R + row // (16 * WN)
    lane, upper = row % 8, (row // 8) % 2
    return fragment // RUN * (16 * RUN) + lane * (2 * RUN) + fragment % RUN * 2 + upper


@gluon.jit
def _in_order(acc, R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr, MP: gl.constexpr,
              LC: gl.constexpr):
    """Sums `(R WN 16, MP)` with their columns in order."""
    acc = gl.reshape(acc, [R // RUN, RUN, WN, 2, 8, MP])
    acc = gl.reshape(gl.permute(acc, (2, 0, 4, 1, 3, 5)), [R * WN * 16, MP])
    # Only the order of registers changes: a lane's neighbouring columns become one store.
    return gl.convert_layout(acc, LC, assert_trivial=True)


@gluon.jit
def _write(out, acc, s, n0, m0, o_m, M, N, SCALED: gl.constexpr, COLUMNS: gl.constexpr,
           MP: gl.constexpr, WHOLE: gl.constexpr, ES: gl.constexpr, LC: gl.constexpr):
    """Scale sums `(columns in order, MP)` and write them."""
    n = n0 + gl.arange(0, COLUMNS, layout=gl.SliceLayout(1, LC))
    m = m0 + gl.arange(0, MP, layout=gl.SliceLayout(0, LC))
    if SCALED:
        acc = acc * gl.expand_dims(s.to(gl.float32), 1)
    inside = gl.expand_dims(m, 0) < M
    if not WHOLE:
        inside = inside & (gl.expand_dims(n, 1) < N)
    gl.store(out + gl.expand_dims(m, 0) * o_m + gl.expand_dims(n, 1),
             acc.to(out.dtype.element_ty), mask=inside, eviction_policy=ES)


@gluon.jit
def _store(out, acc, s, n0, m0, o_m, M, N, SCALED: gl.constexpr, R: gl.constexpr,
           RUN: gl.constexpr, WN: gl.constexpr, MP: gl.constexpr, WHOLE: gl.constexpr,
           ES: gl.constexpr, LC: gl.constexpr):
    """Scale the sums `(R WN 16, MP)` and write them, columns in order."""
    acc = _in_order(acc, R, RUN, WN, MP, LC)
    _write(out, acc, s, n0, m0, o_m, M, N, SCALED, R * WN * 16, MP, WHOLE, ES, LC)


@gluon.jit
def _join(out, acc, s, partials, counters, part, n0, m0, o_m, M, N, SCALED: gl.constexpr,
          R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr, MP: gl.constexpr,
          SPLIT: gl.constexpr, WHOLE: gl.constexpr, ES: gl.constexpr, LC: gl.constexpr):
    """Sums of part `part` of K to memory; the last program of a tile adds all parts, in order.

    The counter is at zero again when the last has left.
    """
    COLUMNS: gl.constexpr = R * WN * 16
    SIZE: gl.constexpr = COLUMNS * MP
    tile = gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)
    tile = tile * (gl.num_programs(2) // SPLIT) + gl.program_id(2) // SPLIT
    n = gl.arange(0, COLUMNS, layout=gl.SliceLayout(1, LC))
    m = gl.arange(0, MP, layout=gl.SliceLayout(0, LC))
    here = partials + tile.to(gl.int64) * (SPLIT * SIZE)
    here = here + gl.expand_dims(m, 0) * COLUMNS + gl.expand_dims(n, 1)
    gl.store(here + part * SIZE, _in_order(acc, R, RUN, WN, MP, LC))
    gl.thread_barrier()
    came = gl.atomic_add(counters + tile, 1, sem="acq_rel", scope="gpu")
    if came == SPLIT - 1:
        total = gl.load(here, cache_modifier=".cg")
        for other in gl.static_range(1, SPLIT):
            total += gl.load(here + other * SIZE, cache_modifier=".cg")
        _write(out, total, s, n0, m0, o_m, M, N, SCALED, COLUMNS, MP, WHOLE, ES, LC)
        gl.store(counters + tile, 0)


@gluon.jit
def _meet(acc, shared, R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr, WK: gl.constexpr,
          KS: gl.constexpr, MP: gl.constexpr, LR: gl.constexpr):
    """Sums `(KS WK, R WN 16, MP)` of all warps along K, added in order: `(MP, columns in order)`.

    By way of shared memory, a thread then adding what belongs to its columns; the compiler's own
    reduction over warps stores with bank conflicts that cost more than the product.
    """
    acc = gl.sum(gl.reshape(acc, [KS, WK, R * WN * 16, MP]), 0)
    acc = gl.reshape(acc, [WK, R // RUN, RUN, WN, 2, 8, MP])
    acc = gl.permute(acc, (0, 6, 3, 1, 5, 2, 4))
    shared.store(gl.reshape(acc, [WK, MP, R * WN * 16]))
    return gl.sum(shared.load(LR), 0)


@gluon.jit
def _store_met(out, acc, s, n0, m0, o_m, M, N, SCALED: gl.constexpr, COLUMNS: gl.constexpr,
               MP: gl.constexpr, WHOLE: gl.constexpr, ES: gl.constexpr, LR: gl.constexpr):
    """As `_store`, for sums `(MP, columns in order)`."""
    n = n0 + gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, gl.SliceLayout(0, LR)))
    m = m0 + gl.arange(0, MP, layout=gl.SliceLayout(1, gl.SliceLayout(0, LR)))
    if SCALED:
        acc = acc * gl.expand_dims(s.to(gl.float32), 0)
    inside = gl.expand_dims(m, 1) < M
    if not WHOLE:
        inside = inside & (gl.expand_dims(n, 0) < N)
    gl.store(out + gl.expand_dims(m, 1) * o_m + gl.expand_dims(n, 0),
             acc.to(out.dtype.element_ty), mask=inside, eviction_policy=ES)


@gluon.jit
def _finish(out, acc, s, shared, n0, m0, o_m, M, N, SCALED: gl.constexpr, R: gl.constexpr,
            RUN: gl.constexpr, WN: gl.constexpr, WK: gl.constexpr, KS: gl.constexpr,
            MP: gl.constexpr, WHOLE: gl.constexpr, ES: gl.constexpr, LC: gl.constexpr,
            LR: gl.constexpr):
    """Add the parts of K, scale, write."""
    if WK > 1:
        total = _meet(acc, shared, R, RUN, WN, WK, KS, MP, LR)
        _store_met(out, total, s, n0, m0, o_m, M, N, SCALED, R * WN * 16, MP, WHOLE, ES, LR)
    else:
        _store(out, gl.sum(acc, 0), s, n0, m0, o_m, M, N, SCALED, R, RUN, WN, MP, WHOLE, ES, LC)


@gluon.jit
def _hold(FENCE: gl.constexpr):
    """Keep the compiler from moving loads past here; without a programmatic launch a no-op."""
    if FENCE:
        gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], gl.int32, False, 1)


@gluon.jit(do_not_specialize=["M", "STEPS"])
def decode_mma(a, words, scale, zero, out, M, N, K, F, UNITS, a_h, a_m, o_h, o_m, STEPS,
               CODE: gl.constexpr, GROUP: gl.constexpr, ZEROS: gl.constexpr, R: gl.constexpr,
               RUN: gl.constexpr, WN: gl.constexpr, WK: gl.constexpr, KS: gl.constexpr,
               ROWS: gl.constexpr, MP: gl.constexpr, TILES: gl.constexpr, ONE: gl.constexpr,
               EVEN: gl.constexpr, WHOLE: gl.constexpr, PAIRS: gl.constexpr,
               UNROLLED: gl.constexpr, AHEAD: gl.constexpr, LW: gl.constexpr, LA: gl.constexpr,
               MMA: gl.constexpr, LC: gl.constexpr, LS: gl.constexpr, LR: gl.constexpr,
               EV: gl.constexpr, ES: gl.constexpr, FENCE: gl.constexpr):
    """One head, `TILES` tiles of `16 R WN` columns, up to `MP` tokens.

    K is walked `WK KS ROWS` rows a step: `WK` warps and `KS` sums a warp take `ROWS` each. `ONE`: a
    step is all of K. `UNROLLED`: so many steps are, and `AHEAD` of them are loaded before they are
    needed; 0 = they are counted at run time, and one is. `GROUP`: rows that share a scale, 0 for
    one scale a column. `EVEN`: steps end with K; `WHOLE`: tiles end with N. `PAIRS`: `a` is of
    words, two neighbours along K each, as its strides are; a loop can then hold the next step's
    tokens in as few registers as they need.
    """
    B: gl.constexpr = KS * WK
    DEPTH: gl.constexpr = B * ROWS
    COLUMNS: gl.constexpr = R * WN * 16
    PER: gl.constexpr = _words_of(CODE, DEPTH)
    SCALED: gl.constexpr = (CODE != "bf16" and CODE != "fp16") and GROUP == 0
    LOB: gl.constexpr = gl.DotOperandLayout(1, MMA, 2)
    LN: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(0, LR)) if WK > 1 else gl.SliceLayout(1, LC)
    h = gl.program_id(1).to(gl.int64)
    m0 = gl.program_id(2) * MP
    f0 = gl.program_id(0) * (TILES * R * WN)
    words += h * F * UNITS
    a += h * a_h
    out += h * o_h
    row = gl.arange(0, R * WN, layout=gl.SliceLayout(1, LW))
    col = gl.arange(0, PER, layout=gl.SliceLayout(0, LW))
    m = m0 + gl.arange(0, MP, layout=gl.SliceLayout(1, LA))
    KD: gl.constexpr = DEPTH // 2 if PAIRS else DEPTH
    k = gl.arange(0, KD, layout=gl.SliceLayout(0, LA))
    limit = K
    if PAIRS:
        limit = K // 2
    zeros = gl.zeros([B, COLUMNS, MP], gl.float32, layout=MMA)
    shared = 0
    if WK > 1:
        shared = gl.allocate_shared_memory(gl.float32, [WK, MP, COLUMNS], LS)
    w = _load_words(words, row, col, f0, 0, F, UNITS, EVEN, WHOLE, EV)
    s = gl.zeros([COLUMNS], scale.dtype.element_ty, layout=LN)
    if SCALED:
        s = _load_scale(scale, f0 * 16, N, h, COLUMNS, WHOLE, LN)
    if ONE:
        _hold(FENCE)
        x = _load_tokens(a, m, k, 0, a_m, M, limit, EVEN)
        # A branch that the compiler cannot decide: loads stay ahead of what uses them.
        go = True
        if FENCE:
            go = M > 0
        if go:
            b = _right(x, CODE, PAIRS, WK, KS, ROWS, MP, LOB)
            for i in range(TILES):
                f = f0 + i * R * WN
                following = w
                scales = s
                if i + 1 < TILES:
                    following = _load_words(words, row, col, f + R * WN, 0, F, UNITS, EVEN,
                                            WHOLE, EV)
                    if SCALED:
                        scales = _load_scale(scale, (f + R * WN) * 16, N, h, COLUMNS, WHOLE, LN)
                v = _left(w, zero, f * 16, 0, N, K, h, CODE, GROUP, ZEROS, R, RUN, WN, WK, KS,
                          ROWS, MMA)
                acc = mma_v2(v, b, zeros)
                if GROUP > 0:
                    acc = _grouped(acc, scale, f * 16, 0, N, K, h, GROUP, R, RUN, WN, WK, KS,
                                   ROWS, MMA)
                _finish(out, acc, s, shared, f * 16, m0, o_m, M, N, SCALED, R, RUN, WN, WK, KS,
                        MP, WHOLE, ES, LC, LR)
                w = following
                s = scales
    elif UNROLLED > 0:
        held = (w,)
        tokens = (_load_tokens(a, m, k, 0, a_m, M, limit, EVEN),)
        for step in gl.static_range(1, AHEAD):
            held = held + (_load_words(words, row, col, f0, step * PER, F, UNITS, EVEN, WHOLE,
                                       EV),)
            tokens = tokens + (_load_tokens(a, m, k, step * KD, a_m, M, limit, EVEN),)
        acc = zeros
        for step in gl.static_range(UNROLLED):
            if step + AHEAD < UNROLLED:
                held = held + (_load_words(words, row, col, f0, (step + AHEAD) * PER, F, UNITS,
                                           EVEN, WHOLE, EV),)
                tokens = tokens + (_load_tokens(a, m, k, (step + AHEAD) * KD, a_m, M, limit,
                                                EVEN),)
            if M > 0:  # as above
                acc = _step(acc, held[step], tokens[step], scale, zero, f0 * 16, step * DEPTH, N,
                            K, h, CODE, GROUP, ZEROS, PAIRS, R, RUN, WN, WK, KS, ROWS, MP, MMA)
        _finish(out, acc, s, shared, f0 * 16, m0, o_m, M, N, SCALED, R, RUN, WN, WK, KS, MP,
                WHOLE, ES, LC, LR)
    else:
        acc = zeros
        x = _load_tokens(a, m, k, 0, a_m, M, limit, EVEN)
        for step in range(STEPS):
            following = w
            tokens = x
            if step + 1 < STEPS:
                following = _load_words(words, row, col, f0, (step + 1) * PER, F, UNITS, EVEN,
                                        WHOLE, EV)
                tokens = _load_tokens(a, m, k, (step + 1) * KD, a_m, M, limit, EVEN)
            acc = _step(acc, w, x, scale, zero, f0 * 16, step * DEPTH, N, K, h, CODE, GROUP,
                        ZEROS, PAIRS, R, RUN, WN, WK, KS, ROWS, MP, MMA)
            w = following
            x = tokens
        _finish(out, acc, s, shared, f0 * 16, m0, o_m, M, N, SCALED, R, RUN, WN, WK, KS, MP,
                WHOLE, ES, LC, LR)


@gluon.jit
def _step(acc, w, x, scale, zero, n0, k0, N, K, h, CODE: gl.constexpr, GROUP: gl.constexpr,
          ZEROS: gl.constexpr, PAIRS: gl.constexpr, R: gl.constexpr, RUN: gl.constexpr,
          WN: gl.constexpr, WK: gl.constexpr, KS: gl.constexpr, ROWS: gl.constexpr,
          MP: gl.constexpr, MMA: gl.constexpr):
    """`acc` and a step's products."""
    LOB: gl.constexpr = gl.DotOperandLayout(1, MMA, 2)
    b = _right(x, CODE, PAIRS, WK, KS, ROWS, MP, LOB)
    v = _left(w, zero, n0, k0, N, K, h, CODE, GROUP, ZEROS, R, RUN, WN, WK, KS, ROWS, MMA)
    if GROUP > 0:
        zeros = gl.zeros([KS * WK, R * WN * 16, MP], gl.float32, layout=MMA)
        return acc + _grouped(mma_v2(v, b, zeros), scale, n0, k0, N, K, h, GROUP, R, RUN, WN, WK,
                              KS, ROWS, MMA)
    return mma_v2(v, b, acc)


@gluon.jit
def _left(w, zero, n0, k0, N, K, h, CODE: gl.constexpr, GROUP: gl.constexpr,
          ZEROS: gl.constexpr, R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr,
          WK: gl.constexpr, KS: gl.constexpr, ROWS: gl.constexpr, MMA: gl.constexpr):
    """The left operand of `decode_mma`, zero points subtracted: bf16 holds the integers exactly."""
    LOA: gl.constexpr = gl.DotOperandLayout(0, MMA, 2)
    v = _operand(w, CODE, not ZEROS, WN, R, WK, KS, ROWS)
    v = gl.convert_layout(v, LOA, assert_trivial=True)
    if ZEROS:
        LZ: gl.constexpr = gl.SliceLayout(2, LOA)
        at, inside = _group_at(n0, k0, N, K, h, GROUP, R, RUN, WN, WK, KS, ROWS, LZ)
        z = gl.load(zero + at, mask=inside, other=0).to(gl.bfloat16)
        v = v - gl.expand_dims(z + 128.0, 2)
    return v


@gluon.jit
def _group_at(n0, k0, N, K, h, GROUP: gl.constexpr, R: gl.constexpr, RUN: gl.constexpr,
              WN: gl.constexpr, WK: gl.constexpr, KS: gl.constexpr, ROWS: gl.constexpr,
              LAYOUT: gl.constexpr):
    """Where the scales of a step's sums lie, `(KS WK, columns)`, and which there are."""
    index = gl.arange(0, KS * WK, layout=gl.SliceLayout(1, LAYOUT))
    first = gl.expand_dims(k0 + (index % WK * KS + index // WK) * ROWS, 1)
    n = gl.expand_dims(n0 + _column(gl.SliceLayout(0, LAYOUT), R, RUN, WN), 0)
    return (h * gl.cdiv(K, GROUP) + first // GROUP) * N + n, (n < N) & (first < K)


@gluon.jit
def _grouped(part, scale, n0, k0, N, K, h, GROUP: gl.constexpr, R: gl.constexpr,
             RUN: gl.constexpr, WN: gl.constexpr, WK: gl.constexpr, KS: gl.constexpr,
             ROWS: gl.constexpr, MMA: gl.constexpr):
    """A step's sums, each of one group, times its scale."""
    at, inside = _group_at(n0, k0, N, K, h, GROUP, R, RUN, WN, WK, KS, ROWS,
                           gl.SliceLayout(2, MMA))
    s = gl.load(scale + at, mask=inside, other=0.0).to(gl.float32)
    return part * gl.expand_dims(s, 2)


@gluon.jit(do_not_specialize=["M", "STEPS"])
def decode_wgmma(a, words, scale, zero, out, partials, counters, M, N, K, F, UNITS, a_h, a_m,
                 o_h, o_m, STEPS,
                 CODE: gl.constexpr, GROUP: gl.constexpr, ZEROS: gl.constexpr, R: gl.constexpr,
                 RUN: gl.constexpr, WN: gl.constexpr, ROWS: gl.constexpr, MP: gl.constexpr,
                 TILES: gl.constexpr, ONE: gl.constexpr, EVEN: gl.constexpr,
                 WHOLE: gl.constexpr, HELD: gl.constexpr, AHEAD: gl.constexpr,
                 SPLIT: gl.constexpr, PAIRS: gl.constexpr, LW: gl.constexpr, LA: gl.constexpr,
                 MMA: gl.constexpr, LC: gl.constexpr, LS: gl.constexpr, EV: gl.constexpr,
                 ES: gl.constexpr, FENCE: gl.constexpr):
    """One head, `TILES` tiles of `16 R WN` columns, up to `MP` tokens; `ROWS` of K a step.

    `ONE`: a step is all of K, and the tokens stay in shared memory for all tiles. `HELD`: so many
    steps are all of K, the tokens are in shared memory before the first, the weights of `AHEAD`
    more are loaded with its own, and a step's are converted while the unit works on the one before.
    Otherwise tokens come with each step, a step ahead as weights do. `SPLIT` programs share K,
    `STEPS` steps each; their sums meet in `partials`, by `counters` that are zero.
    """
    PER: gl.constexpr = _words_of(CODE, ROWS)
    SCALED: gl.constexpr = (CODE != "bf16" and CODE != "fp16") and GROUP == 0
    COLUMNS: gl.constexpr = R * WN * 16
    BUFFERS: gl.constexpr = HELD if HELD > 0 else 1
    LN: gl.constexpr = gl.SliceLayout(1, LC)
    h = gl.program_id(1).to(gl.int64)
    part = gl.program_id(2) % SPLIT
    begin = part * STEPS
    m0 = gl.program_id(2) // SPLIT * MP
    f0 = gl.program_id(0) * (TILES * R * WN)
    words += h * F * UNITS
    a += h * a_h
    out += h * o_h
    row = gl.arange(0, R * WN, layout=gl.SliceLayout(1, LW))
    col = gl.arange(0, PER, layout=gl.SliceLayout(0, LW))
    m = m0 + gl.arange(0, MP, layout=gl.SliceLayout(1, LA))
    KD: gl.constexpr = ROWS // 2 if PAIRS else ROWS
    k = gl.arange(0, KD, layout=gl.SliceLayout(0, LA))
    limit = K
    if PAIRS:
        limit = K // 2
    HALF: gl.constexpr = gl.float16 if CODE == "fp16" else gl.bfloat16
    shared = gl.allocate_shared_memory(HALF, [BUFFERS, MP, ROWS], LS)
    zeros = gl.zeros([COLUMNS, MP], gl.float32, layout=MMA)
    w = _load_words(words, row, col, f0, begin * PER, F, UNITS, EVEN, WHOLE, EV)
    s = gl.zeros([COLUMNS], scale.dtype.element_ty, layout=LN)
    if SCALED:
        s = _load_scale(scale, f0 * 16, N, h, COLUMNS, WHOLE, LN)
    if ONE:
        _hold(FENCE)
        _share(_load_tokens(a, m, k, 0, a_m, M, limit, EVEN), shared.index(0), CODE, PAIRS, ROWS,
               MP)
        for i in range(TILES):
            f = f0 + i * R * WN
            following = w
            scales = s
            if i + 1 < TILES:
                following = _load_words(words, row, col, f + R * WN, 0, F, UNITS, EVEN, WHOLE, EV)
                if SCALED:
                    scales = _load_scale(scale, (f + R * WN) * 16, N, h, COLUMNS, WHOLE, LN)
            v = _left_2d(w, zero, f * 16, 0, N, K, h, CODE, GROUP, ZEROS, R, RUN, WN, ROWS, MMA)
            acc = hopper.warpgroup_mma(v, shared.index(0).permute((1, 0)), zeros, use_acc=False,
                                       is_async=True)
            acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            if GROUP > 0:
                acc = _scaled(acc, scale, f * 16, 0, N, K, h, GROUP, R, RUN, WN, MMA)
            _store(out, acc, s, f * 16, m0, o_m, M, N, SCALED, R, RUN, WN, MP, WHOLE, ES, LC)
            w = following
            s = scales
    elif HELD > 0:
        # All that one program reads is asked for before anything is waited for.
        held = ()
        tokens = ()
        for step in gl.static_range(1, AHEAD + 1):
            held = held + (_load_words(words, row, col, f0, (begin + step) * PER, F, UNITS, EVEN,
                                       WHOLE, EV),)
        for step in gl.static_range(HELD):
            tokens = tokens + (_load_tokens(a, m, k, (begin + step) * KD, a_m, M, limit, EVEN),)
        _hold(FENCE)
        _share(tokens[0], shared.index(0), CODE, PAIRS, ROWS, MP)
        v = _left_2d(w, zero, f0 * 16, 0, N, K, h, CODE, GROUP, ZEROS, R, RUN, WN, ROWS, MMA)
        acc = zeros
        for step in gl.static_range(HELD):
            running = hopper.warpgroup_mma(v, shared.index(step).permute((1, 0)), acc,
                                           use_acc=step > 0, is_async=True)
            if step + 1 < HELD:
                _share(tokens[step + 1], shared.index(step + 1), CODE, PAIRS, ROWS,
                       MP)
                v = _left_2d(held[step], zero, f0 * 16, (step + 1) * ROWS, N, K, h, CODE, GROUP,
                             ZEROS, R, RUN, WN, ROWS, MMA)
            if step + 1 + AHEAD < HELD:
                held = held + (_load_words(words, row, col, f0, (begin + step + 1 + AHEAD) * PER,
                                           F, UNITS, EVEN, WHOLE, EV),)
            acc = hopper.warpgroup_mma_wait(0, deps=(running,))
        _end(out, acc, s, partials, counters, part, f0 * 16, m0, o_m, M, N, SCALED, R, RUN, WN, MP,
             SPLIT, WHOLE, ES, LC)
    else:
        acc = zeros
        x = _load_tokens(a, m, k, begin * KD, a_m, M, limit, EVEN)
        for step in range(begin, begin + STEPS):
            following = w
            tokens = x
            if step + 1 < begin + STEPS:
                following = _load_words(words, row, col, f0, (step + 1) * PER, F, UNITS, EVEN,
                                        WHOLE, EV)
                tokens = _load_tokens(a, m, k, (step + 1) * KD, a_m, M, limit, EVEN)
            _share(x, shared.index(0), CODE, PAIRS, ROWS, MP)
            v = _left_2d(w, zero, f0 * 16, step * ROWS, N, K, h, CODE, GROUP, ZEROS, R, RUN, WN,
                         ROWS, MMA)
            if GROUP > 0:
                sums = hopper.warpgroup_mma(v, shared.index(0).permute((1, 0)), zeros,
                                            use_acc=False, is_async=True)
                sums = hopper.warpgroup_mma_wait(0, deps=(sums,))
                acc += _scaled(sums, scale, f0 * 16, step * ROWS, N, K, h, GROUP, R, RUN, WN, MMA)
            else:
                acc = hopper.warpgroup_mma(v, shared.index(0).permute((1, 0)), acc,
                                           is_async=True)
                acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
            w = following
            x = tokens
        _end(out, acc, s, partials, counters, part, f0 * 16, m0, o_m, M, N, SCALED, R, RUN, WN, MP,
             SPLIT, WHOLE, ES, LC)


@gluon.jit
def _end(out, acc, s, partials, counters, part, n0, m0, o_m, M, N, SCALED: gl.constexpr,
         R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr, MP: gl.constexpr,
         SPLIT: gl.constexpr, WHOLE: gl.constexpr, ES: gl.constexpr, LC: gl.constexpr):
    """What `decode_wgmma` does with its sums."""
    if SPLIT > 1:
        _join(out, acc, s, partials, counters, part, n0, m0, o_m, M, N, SCALED, R, RUN, WN, MP,
              SPLIT, WHOLE, ES, LC)
    else:
        _store(out, acc, s, n0, m0, o_m, M, N, SCALED, R, RUN, WN, MP, WHOLE, ES, LC)


@gluon.jit
def _share(x, shared, CODE: gl.constexpr, PAIRS: gl.constexpr, ROWS: gl.constexpr,
           MP: gl.constexpr):
    """Tokens into shared memory, rows in packed order, where the warpgroup unit sees them."""
    if PAIRS:
        x = _halves(x, CODE)
    x = gl.reshape(x, [MP, ROWS // 32, 4, 2, 2, 2])
    shared.store(gl.reshape(gl.permute(x, (0, 1, 3, 4, 2, 5)), [MP, ROWS]))
    hopper.fence_async_shared()


@gluon.jit
def _left_2d(w, zero, n0, k0, N, K, h, CODE: gl.constexpr, GROUP: gl.constexpr,
             ZEROS: gl.constexpr, R: gl.constexpr, RUN: gl.constexpr, WN: gl.constexpr,
             ROWS: gl.constexpr, MMA: gl.constexpr):
    """The left operand of `decode_wgmma`, `(R WN 16, ROWS)`."""
    LOA: gl.constexpr = gl.DotOperandLayout(0, MMA, 2)
    v = gl.reshape(_operand(w, CODE, not ZEROS, WN, R, 1, 1, ROWS), [R * WN * 16, ROWS])
    v = gl.convert_layout(v, LOA, assert_trivial=True)
    if ZEROS:
        n = n0 + _column(gl.SliceLayout(1, LOA), R, RUN, WN)
        at = (h * gl.cdiv(K, GROUP) + k0 // GROUP) * N + n
        z = gl.load(zero + at, mask=(n < N) & (k0 < K), other=0).to(gl.bfloat16)
        v = v - gl.expand_dims(z + 128.0, 1)
    return v


@gluon.jit
def _scaled(part, scale, n0, k0, N, K, h, GROUP: gl.constexpr, R: gl.constexpr,
            RUN: gl.constexpr, WN: gl.constexpr, MMA: gl.constexpr):
    """A step's sums times the scale of its group."""
    n = n0 + _column(gl.SliceLayout(1, MMA), R, RUN, WN)
    at = (h * gl.cdiv(K, GROUP) + k0 // GROUP) * N + n
    s = gl.load(scale + at, mask=(n < N) & (k0 < K), other=0.0).to(gl.float32)
    return part * gl.expand_dims(s, 1)


def _log2(count: int) -> int:
    return count.bit_length() - 1


def wgmma_layouts(
    code: str, R: int, WN: int, ROWS: int, MP: int, pairs: bool = False
) -> dict[str, Any]:
    """The same for `decode_wgmma`."""
    shared = mma_layouts(code, R, WN, 1, 1, ROWS, MP)
    return {
        "LW": shared["LW"],
        "LC": shared["LC"],
        "LA": gl.BlockedLayout([1, 4 if pairs else 8], [4, 8], [WN, 1], [1, 0]),
        "MMA": gl.NVMMADistributedLayout([3, 0], [WN, 1], [16, MP, 16]),
        "LS": gl.NVMMASharedLayout(128, 16, 2),
    }


def mma_layouts(
    code: str, R: int, WN: int, WK: int, KS: int, ROWS: int, MP: int, pairs: bool = False
) -> dict[str, Any]:
    """Which lane and register hold what: of the words, the tokens, the sums."""
    chunks = KS * ROWS // {"bf16": 16, "fp16": 16, "int4": 64}.get(code, 32)
    words = gl.DistributedLinearLayout(
        [[0, 1 << i] for i in (0, 1)]
        + [[0, 128 << i] for i in range(_log2(chunks))]
        + [[1 << i, 0] for i in range(_log2(R))],
        [[0, 4 << i] for i in range(5)],
        [[R << i, 0] for i in range(_log2(WN))]
        + [[0, (128 * chunks) << i] for i in range(_log2(WK))],
        [],
        [WN * R, WK * chunks * 128],
    )
    half = 1 if pairs else 0
    tokens = gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4]][: 3 - half]
        + [[0, 32 >> half << i] for i in range(_log2(KS * ROWS // 32))]
        + [[8 << i, 0] for i in range(_log2(MP // 8))],
        [[0, 8 >> half], [0, 16 >> half], [1, 0], [2, 0], [4, 0]],
        [[0, 0]] * _log2(WN) + [[0, (KS * ROWS) >> half << i] for i in range(_log2(WK))],
        [],
        [MP, (WK * KS * ROWS) >> half],
    )
    mma = gl.NVMMADistributedLayout([2, 0], [WK, WN, 1], [1, 16, 8])
    run = 2 if code == "int4" else 1
    sums = gl.DistributedLinearLayout(
        [[1 << i, 0] for i in range(1 + _log2(run))]
        + [[(16 * run) << i, 0] for i in range(_log2(R // run))]
        + [[0, 1]]
        + [[0, 8 << i] for i in range(_log2(MP // 8))],
        [[0, 2], [0, 4], [2 * run, 0], [4 * run, 0], [8 * run, 0]],
        [[(16 * R) << i, 0] for i in range(_log2(WN))] + [[0, 0]] * _log2(WK),
        [],
        [R * WN * 16, MP],
    )
    met = _met_layout(R * WN * 16, WN, WK)
    shared = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    return {"LW": words, "LA": tokens, "MMA": mma, "LC": sums, "LS": shared, "LR": met}


def _met_layout(columns: int, WN: int, WK: int) -> gl.BlockedLayout:
    """All parts of K in one thread, two columns each, threads over columns and then tokens."""
    lanes = min(32, columns // 2)
    left = WN * WK
    across = min(left, max(1, columns // (2 * lanes)))
    return gl.BlockedLayout(
        [WK, 1, 2], [1, 32 // lanes, lanes], [1, left // across, across], [2, 1, 0]
    )
