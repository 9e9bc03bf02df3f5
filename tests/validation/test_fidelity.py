"""The judge of outputs: honest arithmetic passes, single mistakes do not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_compass.api.kernel_checks import check_fidelity
from kernel_compass.errors import UsageError
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.references import (
    dequantize,
    dequantize_activations,
    expected,
    product,
    quantize_activations,
)
from kernel_compass.records.fidelity import FidelityFault
from kernel_compass.records.number_format import EXAMPLES, NumberFormat
from kernel_compass.validation import fidelity

torch = pytest.importorskip("torch", reason="outputs are tensors of PyTorch")

BF16 = NumberFormat.parse("bf16")


def normal(*shape, seed=0, dtype=None):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype or torch.bfloat16)


def problem(name="bf16", heads=2, rows=4, reduction=128, columns=96):
    weight = quantize(normal(heads, reduction, columns), NumberFormat.parse(name))
    return normal(heads, rows, reduction, seed=1), weight


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_rounded_reference_passes(name, dtype):
    a, weight = problem(name)
    reference = expected(a, weight)
    found = fidelity.check_fidelity(reference.value.to(getattr(torch, dtype)), reference)
    assert found.passed, found.reason
    assert found.blind_to == ()
    assert found.worst.ratio <= 1


@pytest.mark.parametrize("shape", [(1, 16, 7), (3, 1, 4096), (1, 5, 1)])
@pytest.mark.parametrize(
    "name", ["bf16", "w8a16_int8", "w8a16_fp8", "w4a16_g128", "w4a16_g32_asym"]
)
def test_float32_arithmetic_passes(name, shape):
    heads, rows, reduction = shape
    a, weight = problem(name, heads, rows, reduction)
    output = (a.float() @ dequantize(weight).float()).to(torch.bfloat16)
    assert check_fidelity(output, a, weight).passed


def test_positive_operands_added_one_by_one_pass():
    """The longest chain of roundings that all go the same way."""
    a = torch.rand(1, 1, 4096).to(torch.bfloat16) + 1
    weight = quantize(torch.rand(1, 4096, 8) + 1, BF16)
    total = torch.zeros(1, 1, 8)
    for k in range(4096):
        total = total + a[:, :, k : k + 1].float() * weight.codes[:, k : k + 1].float()
    found = check_fidelity(total, a, weight)
    assert found.passed, found.reason
    assert found.worst.ratio < 0.5


def test_rounded_weights_need_their_allowance():
    a, weight = problem("w4a16_g32_asym", reduction=512)
    rounded = dequantize(weight).to(torch.bfloat16)
    output = (a.float() @ rounded.float()).to(torch.bfloat16)
    assert check_fidelity(output, a, weight, rounded_weights=True).passed
    strict = check_fidelity((a.float() @ rounded.float()), a, weight, limit=1e-4)
    assert strict.fault is FidelityFault.FROBENIUS


@pytest.mark.parametrize("name", ["w8a8_int8", "w8a8_fp8", "w8a8_fp8_block"])
def test_another_honest_quantizer_of_activations_passes(name):
    """In float32, by a reciprocal, ties away from zero: what a kernel may do."""
    a, weight = problem(name, rows=16, reduction=256)
    number_format = weight.format
    width = 128 if number_format.block else 256
    limit = 127.0 if name == "w8a8_int8" else 448.0
    parts = a.float().reshape(2, 16, -1, width)
    largest = parts.abs().amax(-1, keepdim=True)
    ratio = parts * (limit / largest)
    if name == "w8a8_int8":
        codes = ratio.sign() * (ratio.abs() + 0.5).floor()
    else:
        codes = ratio.clamp(-448, 448).to(torch.float8_e4m3fn).float()
    values = (codes * (largest / limit)).reshape(2, 16, 256)
    output = (values @ dequantize(weight).float()).to(torch.bfloat16)
    assert check_fidelity(output, a, weight).passed


def mistake(name, output, a, weight):
    """An output as a kernel with one mistake gives it."""
    values = dequantize(weight)
    if name == "zeros":
        return torch.zeros_like(output)
    if name == "rows moved":
        return output.roll(1, 1)
    if name == "columns moved":
        return output.roll(1, 2)
    if name == "heads moved":
        return output.roll(1, 0)
    if name == "last product dropped":
        return product(a[..., :-1], values[:, :-1]).to(output.dtype)
    if name == "one element doubled":
        output = output.clone()
        output[1, 2, 3] *= 2
        return output
    if name == "last column unwritten":
        output = output.clone()
        output[..., -1] = float("nan")
        return output
    if name == "sign flipped":
        return -output
    if name == "bf16 sums":
        total = torch.zeros_like(output)
        for k in range(a.shape[-1]):
            total += a[..., k : k + 1] * values[:, k : k + 1].to(a.dtype)
        return total
    raise ValueError(name)


FAULTS = {
    "zeros": FidelityFault.NO_BETTER,
    "rows moved": FidelityFault.NO_BETTER,
    "columns moved": FidelityFault.NO_BETTER,
    "heads moved": FidelityFault.NO_BETTER,
    "last product dropped": FidelityFault.FROBENIUS,
    "one element doubled": FidelityFault.FROBENIUS,
    "last column unwritten": FidelityFault.NOT_FINITE,
    "sign flipped": FidelityFault.NO_BETTER,
    "bf16 sums": FidelityFault.FROBENIUS,
}


@pytest.mark.parametrize("name", FAULTS)
def test_mistakes_are_found(name):
    a, weight = problem("w8a16_int8")
    output = product(a, weight).to(torch.bfloat16)
    found = check_fidelity(mistake(name, output, a, weight), a, weight)
    assert found.fault is FAULTS[name], found.reason


def test_one_wrong_element_of_many_is_found_by_its_bound():
    a, weight = problem(heads=8, rows=64, columns=512)
    output = product(a, weight).to(torch.bfloat16)
    output[5, 6, 7] += 0.5
    found = check_fidelity(output, a, weight)
    assert found.fault is FidelityFault.ELEMENT
    assert found.worst.index == (5, 6, 7)
    assert found.worst.value - found.worst.reference == pytest.approx(0.5, abs=0.15)
    assert found.relative_frobenius < 2.5e-3
    assert "[5, 6, 7]" in found.reason


def test_a_loose_limit_must_still_beat_zeros_and_moved_outputs():
    reference = expected(*problem(heads=1))
    for output in (reference.value * 0, reference.value.roll(1, 1), reference.value.roll(1, 2)):
        found = fidelity.check_fidelity(output.float(), reference, limit=10)
        assert found.fault is FidelityFault.NO_BETTER


def test_inputs_that_cannot_show_a_mistake_are_named():
    weight = quantize(torch.ones(2, 32, 8), BF16)
    a = torch.ones(2, 4, 32, dtype=torch.bfloat16)
    found = check_fidelity(product(a, weight).to(torch.bfloat16), a, weight)
    assert found.passed
    assert found.blind_to == ("heads", "rows", "columns")
    nothing = check_fidelity(torch.zeros(2, 4, 8).to(torch.bfloat16), a * 0, weight)
    assert nothing.passed
    assert "zeros" in nothing.blind_to
    assert nothing.relative_frobenius is None


def test_a_zero_reference_admits_no_output():
    weight = quantize(torch.ones(1, 32, 8), BF16)
    found = check_fidelity(torch.full((2, 8), 1e-6), torch.zeros(2, 32), weight)
    assert found.fault is FidelityFault.ELEMENT


def test_nan_and_infinity_in_activations_cost_their_rows():
    a, weight = problem(heads=1)
    a[0, 1, 5] = float("nan")
    a[0, 2, 5] = float("inf")
    output = (a.float() @ weight.codes.float()).to(torch.bfloat16)
    found = check_fidelity(output, a, weight)
    assert found.passed
    assert found.unjudged == 2 * 96
    output[0, 3, 4] = float("inf")
    assert check_fidelity(output, a, weight).fault is FidelityFault.NOT_FINITE
    a[:] = float("nan")
    assert check_fidelity(output, a, weight).fault is FidelityFault.NOTHING_JUDGED


def test_overflow_of_the_output_type_is_not_judged():
    a, weight = problem(heads=1)
    a = a.float()
    a[0, 0] *= 1e6
    output = product(a, weight).to(torch.float16)
    assert bool(output[0, 0].isinf().any())
    found = check_fidelity(output, a, weight)
    assert found.passed, found.reason
    assert 0 < found.unjudged <= 96


@pytest.mark.parametrize("size", [1e-30, 1e15])
def test_tiny_and_large_operands(size):
    a, weight = problem()
    a = (a.float() * size).to(torch.bfloat16)
    output = product(a, weight).to(torch.bfloat16)
    assert check_fidelity(output, a, weight).passed
    assert not check_fidelity(output * 1.01, a, weight).passed


def test_outlier_columns_do_not_hide_a_wrong_small_one():
    weight = normal(1, 128, 64)
    weight[:, :, 0] *= 1e6
    quantized = quantize(weight, BF16)
    a = normal(1, 4, 128, seed=1)
    output = product(a, quantized).to(torch.bfloat16)
    output[..., 1] = output[..., 2]
    assert check_fidelity(output, a, quantized).fault is FidelityFault.ELEMENT


def test_shapes_types_and_empty_products():
    a, weight = problem(heads=1)
    assert check_fidelity(torch.zeros(1, 4, 95), a, weight).fault is FidelityFault.SHAPE
    with pytest.raises(UsageError, match="int32 cannot be judged"):
        check_fidelity(torch.zeros(1, 4, 96, dtype=torch.int32), a, weight)
    empty = check_fidelity(torch.zeros(1, 0, 96), a[:, :0], weight)
    assert empty.passed
    assert "empty" in empty.reason


def test_linear_products_have_two_dimensions():
    layer, a = normal(96, 64), normal(5, 64, seed=1)
    weight = quantize(linear_weight(layer), NumberFormat.parse("w8a16_fp8"))
    output = (a.float() @ dequantize(weight)[0].float()).to(torch.bfloat16)
    found = check_fidelity(output, a, weight)
    assert found.passed
    assert len(found.worst.index) == 2


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(EXAMPLES),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(2, 150), st.integers(1, 20)),
    exponent=st.integers(-40, 40),
    seed=st.integers(0, 2**31),
)
def test_the_verdict_does_not_depend_on_scale(name, shape, exponent, seed):
    """Powers of two change no significant bit: neither the error nor who passes."""
    heads, rows, reduction, columns = shape
    weight = quantize(normal(heads, reduction, columns, seed=seed), NumberFormat.parse(name))
    a = normal(heads, rows, reduction, seed=seed + 1)
    scaled = (a.double() * 2.0**exponent).to(torch.bfloat16)
    reference = expected(a, weight)
    right = reference.value.to(torch.bfloat16)
    for output in (right, right * 1.02):
        first = fidelity.check_fidelity(output, reference)
        moved = (output.double() * 2.0**exponent).to(torch.bfloat16)
        second = check_fidelity(moved, scaled, weight)
        assert (first.fault, first.blind_to) == (second.fault, second.blind_to)
        assert second.relative_frobenius == pytest.approx(first.relative_frobenius, rel=1e-6)
    assert fidelity.check_fidelity(right, reference).passed


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(EXAMPLES),
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 200), st.integers(1, 9)),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    seed=st.integers(0, 2**31),
)
def test_honest_kernels_pass_however_few_their_elements_are(name, shape, dtype, seed):
    heads, rows, reduction, columns = shape
    weight = quantize(normal(heads, reduction, columns, seed=seed), NumberFormat.parse(name))
    a = normal(heads, rows, reduction, seed=seed + 1)
    values = a.float()
    if weight.format.activation.bits == 8:
        values = dequantize_activations(quantize_activations(a, weight.format)).float()
    output = (values @ dequantize(weight).float()).to(getattr(torch, dtype))
    found = check_fidelity(output, a, weight)
    assert found.passed, found.reason
    if weight.format.activation.bits == 16:
        rounded = dequantize(weight).to(torch.bfloat16).float()
        output = (values @ rounded).to(torch.bfloat16)
        found = check_fidelity(output, a, weight, rounded_weights=True)
        assert found.passed, found.reason


def test_results_below_the_normal_numbers_pass():
    a, weight = problem()
    a = (a.float() * 1e-7).to(torch.bfloat16)
    output = product(a, weight).to(torch.float16)
    found = check_fidelity(output, a, weight)
    assert found.relative_frobenius > 5e-3
    assert found.passed, found.reason
    assert not check_fidelity(output * 1.25, a, weight).passed


def test_sums_that_cancel_pass():
    """Large products whose sum is small: its rounding error is no small part of it."""
    half = normal(1, 4, 256, seed=1).float() * 1000
    half[..., 0] /= 100
    a = torch.cat((half, half), 2).to(torch.bfloat16)
    weight = normal(1, 256, 300)
    both = torch.cat((weight, -weight), 1)
    both[:, 0] *= 1.0078125
    quantized = quantize(both, BF16)
    total = torch.zeros(1, 4, 300)
    for k in range(512):
        total = total + a[:, :, k : k + 1].float() * quantized.codes[:, k : k + 1].float()
    found = check_fidelity(total, a, quantized)
    assert found.relative_frobenius > found.limit
    assert found.passed, found.reason
