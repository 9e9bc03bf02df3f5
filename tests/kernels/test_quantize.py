"""Codes and scales against numpy, and weights that are hard to quantize."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_compass.errors import UsageError
from kernel_compass.kernels import chunks as chunks_module
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.references import dequantize
from kernel_compass.records.number_format import EXAMPLES, NumberFormat

torch = pytest.importorskip("torch", reason="weights are tensors of PyTorch")

QUANTIZED = [name for name in EXAMPLES if NumberFormat.parse(name).weight.bits < 16]


def normal(*shape, seed=0, dtype=None):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype or torch.bfloat16)


def numpy_scales(weight, name):
    """Scales as the format's definition says, by loops over groups and columns; float64."""
    number_format = NumberFormat.parse(name)
    heads, reduction, columns = weight.shape
    group = number_format.group or reduction
    across = 128 if number_format.block else 1
    steps = {"fp8": 448, "int8": 127, "int4": 7}[number_format.weight.value]
    rows = []
    for h in range(heads):
        for k in range(0, reduction, group):
            for n in range(0, columns, across):
                part = weight[h, k : k + group, n : n + across]
                if number_format.zero_points:
                    rows.append((max(part.max(), 0) - min(part.min(), 0)) / 15)
                else:
                    rows.append(np.abs(part).max() / steps)
    return np.array(rows).reshape(heads, -(-reduction // group), -(-columns // across))


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("shape", [(2, 128, 256), (1, 200, 130), (3, 7, 5)])
def test_scales_are_what_the_format_says(name, shape):
    weight = normal(*shape)
    quantized = quantize(weight, NumberFormat.parse(name), torch.float32)
    expected = numpy_scales(weight.double().numpy(), name)
    np.testing.assert_allclose(quantized.scales.double().numpy(), expected, rtol=1e-6)
    assert quantized.scales.numel() == quantized.format.scale_count(*shape)


@pytest.mark.parametrize("name", QUANTIZED)
def test_every_value_is_within_half_a_step_of_its_code(name):
    weight = normal(2, 200, 130)
    number_format = NumberFormat.parse(name)
    quantized = quantize(weight, number_format, torch.float32)
    error = (dequantize(quantized) - weight.double()).abs()
    step = torch.from_numpy(numpy_scales(weight.double().numpy(), name))
    if number_format.block:
        step = step.repeat_interleave(128, 2)[..., :130]
    if number_format.group:
        step = step.repeat_interleave(number_format.group, 1)[:, :200]
    if number_format.weight.value == "fp8":  # 3 bits of mantissa, and subnormals of 2^-9
        step = torch.maximum(weight.double().abs() / 8, step * 2.0**-9)
    assert bool((error <= 0.5 * step * (1 + 1e-5)).all())


@pytest.mark.parametrize("name", QUANTIZED)
def test_codes_belong_to_the_rounded_scale(name):
    """With a rounded scale only a group's extreme values may be off by more than half a step."""
    weight = normal(1, 128, 64)
    quantized = quantize(weight, NumberFormat.parse(name), torch.bfloat16)
    assert quantized.scales.dtype is torch.bfloat16
    error = (dequantize(quantized) - weight.double()).abs()
    scales = quantized.scales.double()
    if quantized.format.block:
        scales = scales.repeat_interleave(128, 2)[..., :64]
    step = scales.repeat_interleave(quantized.format.group or 128, 1)
    if quantized.format.weight.value == "fp8":
        step = torch.maximum(weight.double().abs() / 8, step * 2.0**-9)
    clipped = error > 0.5 * step * (1 + 1e-5)
    assert float(clipped.double().mean()) < 0.05
    reach = float(weight.double().abs().max()) * 2  # a scale is off by 2^-9 at most
    assert bool(((error - 0.5 * step)[clipped] < reach * 2.0**-9).all())


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_16_bit_format_is_a_cast(name):
    weight = normal(2, 16, 8, dtype=torch.float32)
    quantized = quantize(weight, NumberFormat.parse(name))
    assert quantized.scales is None
    assert torch.equal(quantized.codes, weight.to(quantized.codes.dtype))
    with pytest.raises(UsageError, match="beyond torch"):
        quantize(weight * 1e6, NumberFormat.parse("fp16"))


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_group_of_zeros_is_zero(name):
    weight = torch.zeros(2, 256, 256, dtype=torch.bfloat16)
    weight[1, 3, 7] = 1.0
    quantized = quantize(weight, NumberFormat.parse(name))
    values = dequantize(quantized)
    assert bool((values[0] == 0).all())
    assert float(values[1, 3, 7]) == pytest.approx(1, rel=0.01)
    assert bool((quantized.scales > 0).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["bf16", "w8a16_int8", "w4a16_g32_asym"])
def test_values_without_a_code_are_refused(name, bad):
    weight = normal(1, 64, 64)
    weight[0, 5, 6] = bad
    with pytest.raises(UsageError, match="cannot hold"):
        quantize(weight, NumberFormat.parse(name))


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("size", [1e38, 3e38])
def test_huge_weights_stay_finite(name, size):
    weight = normal(1, 64, 64, dtype=torch.float32).clamp(-1, 1) * size
    values = dequantize(quantize(weight, NumberFormat.parse(name)))
    error = (values - weight.double()).norm() / weight.double().norm()
    assert float(error) < 0.15


def test_scales_beyond_their_type_are_refused():
    huge, tiny = torch.full((1, 32, 4), 1e30), torch.full((1, 32, 4), 1e-44)
    with pytest.raises(UsageError, match="normal numbers"):
        quantize(huge, NumberFormat.parse("w8a16_int8"), torch.float16)
    with pytest.raises(UsageError, match="set weights that small to 0"):
        quantize(tiny, NumberFormat.parse("w8a16_int8"))


def test_a_denormal_beside_normal_weights_becomes_zero():
    weight = torch.tensor([[[1.0], [1e-40]]])
    assert dequantize(quantize(weight, NumberFormat.parse("w4a16_gk"))).flatten()[1] == 0


@pytest.mark.parametrize("wrong", [(4, 4), (1, 0, 4), (1, 2, 3, 4)])
def test_shapes_that_are_no_weight(wrong):
    with pytest.raises(UsageError, match=r"\(H, K, N\)"):
        quantize(torch.zeros(wrong), NumberFormat.parse("w8a16_int8"))


@pytest.mark.parametrize("wrong", [torch.zeros(1, 4, 4, dtype=torch.int8), None, [[1.0]]])
def test_things_that_are_no_weight(wrong):
    with pytest.raises(UsageError, match="16 bits a value"):
        quantize(wrong, NumberFormat.parse("w8a16_int8"))


def test_a_linear_layer_is_a_view_and_keeps_its_strides():
    layer = normal(96, 64)
    view = linear_weight(layer)
    assert view.shape == (1, 64, 96)
    assert view.data_ptr() == layer.data_ptr()
    assert quantize(view, NumberFormat.parse("w8a16_int8")).codes.stride()[1:] == (1, 64)
    with pytest.raises(UsageError, match="two dimensions"):
        linear_weight(view)


@pytest.mark.parametrize("name", EXAMPLES)
def test_pieces_do_not_show(name, monkeypatch):
    weight = normal(3, 40, 300)
    whole = quantize(weight, NumberFormat.parse(name))
    monkeypatch.setattr(chunks_module.chunks, "__defaults__", (40 * 128,))
    pieces = quantize(weight, NumberFormat.parse(name))
    assert torch.equal(dequantize(whole), dequantize(pieces))


@settings(max_examples=60, deadline=None)
@given(
    heads=st.integers(1, 9),
    reduction=st.integers(1, 300),
    columns=st.integers(1, 700),
    elements=st.integers(1, 1 << 17),
)
def test_pieces_cover_a_weight_once(heads, reduction, columns, elements):
    covered = np.zeros((heads, columns), int)
    for head, column in chunks_module.chunks(heads, reduction, columns, elements):
        covered[head, column] += 1
        assert column.start % 128 == 0
    assert bool((covered == 1).all())


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(QUANTIZED),
    reduction=st.integers(1, 140),
    columns=st.integers(1, 140),
    seed=st.integers(0, 2**31),
    exponent=st.integers(-60, 60),
)
def test_quantizing_twice_changes_nothing(name, reduction, columns, seed, exponent):
    """What the codes stand for is a weight that the format holds: symmetric formats find it."""
    number_format = NumberFormat.parse(name)
    weight = normal(1, reduction, columns, seed=seed, dtype=torch.float32) * 2.0**exponent
    once = dequantize(quantize(weight, number_format, torch.float32))
    assert bool(once.isfinite().all())
    if not number_format.zero_points:
        again = dequantize(quantize(once, number_format, torch.float32))
        assert torch.allclose(once, again, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["w4a16_g32", None, 4])
def test_a_name_is_no_format(name):
    with pytest.raises(UsageError, match=r"no NumberFormat\. Pass .*parse\('w4a16_g32'"):
        quantize(normal(1, 32, 8), name)
