"""The packed layout against a scalar reading of its documentation, and back again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="weights are tensors of torch")

from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.kernels.fragments import (  # noqa: E402
    pack,
    packed_bytes,
    padded,
    run_length,
    unpack,
    with_streamed,
)
from kernel_compass.kernels.quantize import quantize  # noqa: E402
from kernel_compass.kernels.quantized import QuantizedWeight  # noqa: E402
from kernel_compass.records.number_format import Code, NumberFormat  # noqa: E402

FORMATS = ("bf16", "fp16", "w8a16_fp8", "w8a16_int8", "w4a16_g32", "w4a16_gk_asym")
STORED = {
    Code.BF16: torch.bfloat16,
    Code.FP16: torch.float16,
    Code.FP8: torch.float8_e4m3fn,
    Code.INT8: torch.int8,
    Code.INT4: torch.uint8,
}
shapes = st.tuples(st.integers(1, 3), st.integers(1, 300), st.integers(1, 80))


def of_bits(bits, code):
    """Codes with these bit patterns, NaN and infinity among them."""
    if code.bits == 16:
        return bits.to(torch.int16).view(STORED[code])
    return bits.to(torch.uint8).view(STORED[code])


def bits_of(codes, code):
    kind = torch.int16 if code.bits == 16 else torch.uint8
    return codes.contiguous().view(kind).to(torch.int64) & (2**code.bits - 1)


def random_weight(name, shape, seed=0, fill=None):
    """Every bit pattern equally likely; or all the same."""
    kind = NumberFormat.parse(name)
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 2**kind.weight.bits, shape, generator=generator)
    if fill is not None:
        bits = torch.full(shape, fill)
    heads, depth, columns = shape
    scales = torch.rand(heads, kind.groups(depth), columns, generator=generator)
    zeros = torch.randint(0, 16, scales.shape, generator=generator).to(torch.uint8)
    return QuantizedWeight(
        kind,
        of_bits(bits, kind.weight),
        None if kind.weight.bits == 16 else scales.bfloat16(),
        zeros if kind.zero_points else None,
    )


def place(code, k, n):
    """Fragment, chunk, lane, word and lowest bit of one code, as the module's docstring says."""
    run = 2 if code is Code.INT4 else 1
    block, c, s, h, b = k // 32, k % 32 // 8, k % 8 // 4, k % 4 // 2, k % 2
    g, within, r = n % (16 * run) // (2 * run), n % (2 * run) // 2, n % 2
    fragment, lane = n // (16 * run) * run + within, 4 * g + c
    if code.bits == 16:
        return fragment, k // 32 * 2 + s, lane, 2 * h + r, 16 * b
    if code.bits == 8:
        return fragment, block, lane, 2 * s + h, 8 * r + 16 * b
    return fragment, k // 64, lane, 2 * (block % 2) + s, 4 * (2 * r + h) + 16 * b


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FORMATS), shapes, st.integers(0, 2**32 - 1), st.data())
def test_each_code_lies_where_the_documentation_says(name, shape, seed, data):
    weight = random_weight(name, shape, seed)
    code, packed = weight.format.weight, pack(weight)
    bits = bits_of(weight.codes, code)
    for _ in range(8):
        head, k, n = (data.draw(st.integers(0, size - 1)) for size in shape)
        fragment, chunk, lane, word, shift = place(code, k, n)
        found = int(packed.words[head, fragment, chunk, lane, word]) >> shift
        assert found & (2**code.bits - 1) == int(bits[head, k, n])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FORMATS), shapes, st.integers(0, 2**32 - 1))
def test_unpack_gives_back_what_was_packed(name, shape, seed):
    weight = random_weight(name, shape, seed)
    packed = pack(weight)
    back, code = unpack(packed), weight.format.weight
    assert back.format == weight.format and back.codes.dtype == weight.codes.dtype
    assert torch.equal(bits_of(back.codes, code), bits_of(weight.codes, code))
    assert back.scales is packed.scales and back.zeros is packed.zeros
    k, n = padded(code, *shape[1:])
    assert packed.words.numel() * 32 == shape[0] * k * n * code.bits
    assert packed.words.nbytes == packed_bytes(weight.format, *shape)
    assert packed.words.is_contiguous() and packed.words.dtype == torch.int32


@pytest.mark.parametrize("name", FORMATS)
def test_no_two_codes_share_a_place_and_none_is_left_over(name):
    code = NumberFormat.parse(name).weight
    k, n = padded(code, 100, 50)
    places = {place(code, row, column) for row in range(k) for column in range(n)}
    assert len(places) == k * n == packed_bytes(NumberFormat.parse(name), 1, k, n) * 8 // code.bits


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 127, 17), (1, 129, 33)])
def test_padding_is_zero_in_value(name, shape):
    weight = random_weight(name, shape, fill=3)
    packed, code = pack(weight), weight.format.weight
    k, n = padded(code, *shape[1:])
    whole = unpack(replace(packed, reduction=k, columns=n))
    bits = bits_of(whole.codes, code)
    neutral = 8 if code is Code.INT4 else 0
    assert (bits[:, : shape[1], : shape[2]] == 3).all()
    assert (bits[:, shape[1] :] == neutral).all() and (bits[:, :, shape[2] :] == neutral).all()


@pytest.mark.parametrize("code", [Code.FP8, Code.INT8, Code.INT4])
def test_every_bit_pattern_survives_in_every_lane(code):
    """256 (16) patterns down, each row rotated by one: every lane gets every pattern."""
    name = {Code.FP8: "w8a16_fp8", Code.INT8: "w8a16_int8", Code.INT4: "w4a16_gk"}[code]
    count = 2**code.bits
    bits = (torch.arange(256)[:, None] + torch.arange(64)[None]) % count
    weight = QuantizedWeight(
        NumberFormat.parse(name), of_bits(bits[None], code), torch.ones(1, 1, 64)
    )
    assert torch.equal(bits_of(unpack(pack(weight)).codes, code)[0], bits)


@pytest.mark.parametrize("name", FORMATS)
def test_codes_of_any_strides_are_packed_alike(name):
    weight = random_weight(name, (3, 70, 40))
    code = weight.format.weight
    turned = bits_of(weight.codes, code).transpose(0, 2).contiguous().transpose(0, 2)
    buffer = of_bits(torch.zeros(3, 71, 43, dtype=torch.int64), code)
    buffer[:, 1:, 2:42] = weight.codes
    kind = torch.int16 if code.bits == 16 else torch.uint8
    columns = turned.to(kind).view(STORED[code])
    for codes in (columns, buffer[:, 1:, 2:42]):
        assert not codes.is_contiguous()
        other = pack(QuantizedWeight(weight.format, codes, weight.scales, weight.zeros))
        assert torch.equal(other.words, pack(weight).words)


def test_packing_leaves_the_weight_as_it_was():
    weight = quantize(torch.randn(2, 40, 20), NumberFormat.parse("w4a16_g32_asym"))
    before = [t.clone() for t in (weight.codes, weight.scales, weight.zeros)]
    pack(weight)
    assert all(map(torch.equal, before, (weight.codes, weight.scales, weight.zeros)))


def test_other_copies_of_the_tensors_take_their_places():
    packed = pack(random_weight("w4a16_gk_asym", (1, 64, 32)))
    copies = tuple(t.clone() for t in packed.streamed)
    other = with_streamed(packed, copies)
    assert (other.words, other.scales, other.zeros) == copies
    plain = pack(random_weight("bf16", (1, 64, 32)))
    assert with_streamed(plain, plain.streamed) == plain


def test_runs_of_fragments():
    assert [run_length(code) for code in Code] == [1, 1, 1, 1, 2]


def test_block_scales_are_refused():
    weight = quantize(torch.randn(1, 128, 128), NumberFormat.parse("w8a8_fp8_block"))
    with pytest.raises(UsageError, match=r"block scales.*own_fp8_block"):
        pack(weight)
