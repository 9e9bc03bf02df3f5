"""Kernels that do one thing only: read, read and write, unpack, spin. Needs triton.

Each is the plainest code that reaches its ceiling; `probes.py` chooses their configurations by
timing.
"""

from __future__ import annotations

import triton
import triton.language as tl

ABSENT = tl.constexpr(-1)
"""A word that the data never holds: a store that it guards cannot be dropped, and never runs."""


@triton.jit
def read(src, sink, words, BLOCK: tl.constexpr):
    """Read `words` int32 words once, `BLOCK` a program."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < words
    x = tl.load(src + offsets, mask=inside, other=0)
    tl.store(sink + tl.arange(0, BLOCK), x, mask=x == ABSENT)


@triton.jit
def read_persistent(src, sink, words, BLOCK: tl.constexpr):
    """Read `words` words with a fixed number of programs, each taking every so-many-th block."""
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(0, tl.cdiv(words - tl.program_id(0).to(tl.int64) * BLOCK, step)):
        x = tl.load(src + offsets, mask=offsets < words, other=0)
        tl.store(sink + tl.arange(0, BLOCK), x, mask=x == ABSENT)
        offsets += step


@triton.jit
def read_write(src, dst, words, BLOCK: tl.constexpr):
    """Copy `words` int32 words, `BLOCK` a program."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < words
    tl.store(dst + offsets, tl.load(src + offsets, mask=inside, other=0), mask=inside)


@triton.jit
def read_in_flight(src, sink, words, BLOCK: tl.constexpr):
    """Read `words` words with `BLOCK` words a program in flight, the next only after these came."""
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    last = tl.zeros((BLOCK,), tl.int32)
    for _ in tl.range(0, tl.cdiv(words - start, step), num_stages=1, loop_unroll_factor=1):
        # The address depends on the last value (by nothing: values are positive), so a round
        # waits for the loads of the one before. The hints keep the loads 16 bytes wide.
        here = tl.max_contiguous(tl.multiple_of(offsets + tl.minimum(last, 0), [4]), [4])
        last = tl.load(src + here, mask=offsets < words, other=0)
        offsets += step
    tl.store(sink + tl.arange(0, BLOCK), last, mask=last == ABSENT)


@triton.jit
def unpack_int4_packed(src, sink, rounds, BLOCK: tl.constexpr):
    """Unpack the eight 4-bit weights of a word to bf16 pairs, `rounds` times; a xor uses each pair.

    0x4300 | n is 128 + n in bf16: the cheapest exact conversion, whose offset a kernel folds into
    its accumulator.
    """
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(src + offsets)
    used = tl.zeros((BLOCK,), tl.int32)
    for _ in range(rounds):
        for nibble in tl.static_range(4):
            used ^= ((word >> (4 * nibble)) & 0x000F000F) | 0x43004300
        word += used & 0x01010101
    tl.store(sink + tl.arange(0, BLOCK), used, mask=used == 0x7FFFFFFF)


@triton.jit
def unpack_int4(src, sink, rounds, BLOCK: tl.constexpr):
    """The same by integer-to-float conversion, as plain Triton code does it."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(src + offsets)
    used = tl.zeros((BLOCK,), tl.int16)
    for _ in range(rounds):
        for nibble in tl.static_range(8):
            weight = (((word >> (4 * nibble)) & 15) - 8).to(tl.float32).to(tl.bfloat16)
            used ^= weight.to(tl.int16, bitcast=True)
        word += 0x01234567
    tl.store(sink + tl.arange(0, BLOCK), used.to(tl.int32), mask=used == 0x7FFF)


@triton.jit
def unpack_int8(src, sink, rounds, BLOCK: tl.constexpr):
    """The same for four 8-bit integers a word."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(src + offsets)
    used = tl.zeros((BLOCK,), tl.int16)
    for _ in range(rounds):
        for byte in tl.static_range(4):
            weight = (word >> (8 * byte)).to(tl.int8).to(tl.float32).to(tl.bfloat16)
            used ^= weight.to(tl.int16, bitcast=True)
        word += 0x01234567
    tl.store(sink + tl.arange(0, BLOCK), used.to(tl.int32), mask=used == 0x7FFF)


@triton.jit
def unpack_fp8(src, sink, rounds, BLOCK: tl.constexpr):
    """The same for four e4m3 numbers a word."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(src + offsets)
    used = tl.zeros((BLOCK,), tl.int16)
    for _ in range(rounds):
        for byte in tl.static_range(4):
            code = (word >> (8 * byte)).to(tl.int8)
            weight = code.to(tl.float8e4nv, bitcast=True).to(tl.float32).to(tl.bfloat16)
            used ^= weight.to(tl.int16, bitcast=True)
        word += 0x01234567
    tl.store(sink + tl.arange(0, BLOCK), used.to(tl.int32), mask=used == 0x7FFF)


@triton.jit
def touch(x):
    """The smallest launch: one program adds one to one word."""
    tl.store(x, tl.load(x) + 1)


@triton.jit
def stream_packed(
    src,
    scales,
    resident,
    dst,
    words,
    scale_words,
    resident_words,
    outputs,
    scale_share,
    resident_share,
    output_share,
    WORDS: tl.constexpr,
    SCALES: tl.constexpr,
    RESIDENT: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """Read a product's operands once, and write its 16-bit outputs.

    What a weight-only kernel moves, without its arithmetic: each program reads `WORDS` words of
    packed weights and its share of the scales and of the activations, and writes its share of the
    outputs. Every output holds the sum of all that its program read, so nothing that is read can
    be left out.
    """
    program = tl.program_id(0).to(tl.int64)
    at = program * WORDS + tl.arange(0, WORDS)
    near = tl.arange(0, SCALES)
    at_scale = program * scale_share + near
    inside = (near < scale_share) & (at_scale < scale_words)
    word = tl.load(src + at, mask=at < words, other=0)
    scale = tl.load(scales + at_scale, mask=inside, other=0)
    read = tl.zeros((RESIDENT,), tl.int32)
    for start in range(0, resident_share, RESIDENT):
        near_word = start + tl.arange(0, RESIDENT)
        at_word = program * resident_share + near_word
        here = (near_word < resident_share) & (at_word < resident_words)
        read += tl.load(resident + at_word, mask=here, other=0)
    total = tl.sum(word, axis=0) + tl.sum(scale, axis=0) + tl.sum(read, axis=0)
    value = tl.zeros((OUTPUTS,), tl.int16) + total.to(tl.int16)
    for start in range(0, output_share, OUTPUTS):
        near_output = start + tl.arange(0, OUTPUTS)
        at_output = program * output_share + near_output
        there = (near_output < output_share) & (at_output < outputs)
        tl.store(dst + at_output, value, mask=there)
