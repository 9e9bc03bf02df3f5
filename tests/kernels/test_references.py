"""Products and quantized activations against numpy and hand-worked values."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_compass.errors import UsageError
from kernel_compass.kernels import chunks as chunks_module
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import (
    dequantize,
    dequantize_activations,
    expected,
    product,
    quantize_activations,
)
from kernel_compass.records.number_format import EXAMPLES, NumberFormat

torch = pytest.importorskip("torch", reason="weights are tensors of PyTorch")

EIGHT_BIT_ACTIVATIONS = ["w8a8_fp8", "w8a8_int8", "w8a8_fp8_block"]


def normal(*shape, seed=0, dtype=None):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype or torch.bfloat16)


def test_int4_by_hand():
    codes = torch.tensor([[[0, 15], [8, 7], [9, 8]]], dtype=torch.uint8)
    symmetric = QuantizedWeight(
        NumberFormat.parse("w4a16_g2"), codes, torch.tensor([[[1.0, 2.0], [4.0, 8.0]]])
    )
    assert dequantize(symmetric).tolist() == [[[-8, 14], [0, -2], [4, 0]]]
    zeros = torch.tensor([[[1, 15], [9, 0]]], dtype=torch.uint8)
    shifted = QuantizedWeight(NumberFormat.parse("w4a16_g2_asym"), codes, symmetric.scales, zeros)
    assert dequantize(shifted).tolist() == [[[-1, 0], [7, -16], [0, 64]]]


def test_blocks_by_hand():
    codes = torch.ones(1, 130, 129).to(torch.float8_e4m3fn)
    scales = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    values = dequantize(QuantizedWeight(NumberFormat.parse("w8a8_fp8_block"), codes, scales))
    assert [
        float(values[0, k, n]) for k, n in ((127, 127), (127, 128), (128, 127), (129, 128))
    ] == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("elements", [None, 70 * 128])
def test_a_product_is_numpy_s(name, elements, monkeypatch):
    if elements:
        monkeypatch.setattr(chunks_module.chunks, "__defaults__", (elements,))
    quantized = quantize(normal(3, 70, 300), NumberFormat.parse(name))
    a = normal(3, 5, 70, seed=1)
    by_numpy = a.double().numpy() @ dequantize(quantized).numpy()
    np.testing.assert_allclose(product(a, quantized).numpy(), by_numpy, rtol=1e-12, atol=1e-12)


def test_a_product_of_a_plain_weight_leaves_it_alone():
    weight, a = normal(2, 8, 4, dtype=torch.float64), normal(2, 3, 8)
    before = weight.clone()
    np.testing.assert_allclose(product(a, weight).numpy(), a.double().numpy() @ before.numpy())
    assert torch.equal(weight, before)


def test_linear_has_two_dimensions():
    layer, a = normal(96, 64), normal(5, 64, seed=1)
    found = product(a, linear_weight(layer))
    np.testing.assert_allclose(
        found.numpy(), a.double().numpy() @ layer.double().numpy().T, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("shape", [(2, 5, 64), (5, 63), (1, 5, 63), (64,)])
def test_activations_that_do_not_fit(shape):
    with pytest.raises(UsageError, match="do not fit"):
        product(torch.zeros(shape), torch.zeros(1, 64, 8))
    with pytest.raises(UsageError, match=r"\(H, K, N\)"):
        product(torch.zeros(5, 64), torch.zeros(64, 8))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_batch_gives_an_empty_product(name, rows):
    weight = quantize(normal(2, 40, 24), NumberFormat.parse(name))
    found = expected(torch.zeros(2, rows, 40, dtype=torch.bfloat16), weight)
    assert found.value.shape == (2, rows, 24)
    assert bool((found.value == 0).all())


@pytest.mark.parametrize("name", EIGHT_BIT_ACTIVATIONS)
@pytest.mark.parametrize("reduction", [128, 200, 3])
def test_activations_are_quantized_a_row_or_a_block_of_it(name, reduction):
    a = normal(2, 5, reduction)
    number_format = NumberFormat.parse(name)
    quantized = quantize_activations(a, number_format)
    limit = 127 if name == "w8a8_int8" else 448
    width = 128 if number_format.block else reduction
    values = a.double().numpy()
    for k in range(0, reduction, width):
        largest = np.abs(values[..., k : k + width]).max(-1)
        found = quantized.scales[..., k // width].double().numpy()
        np.testing.assert_allclose(found, largest / limit, rtol=1e-6)
        assert float(quantized.codes[..., k : k + width].double().abs().max()) == limit
    error = (dequantize_activations(quantized) - a.double()).abs()
    scales = quantized.scales.double().repeat_interleave(width, -1)[..., :reduction]
    step = scales if limit == 127 else torch.maximum(a.double().abs() / 8, scales * 2.0**-9)
    assert bool((error <= 0.5 * step * (1 + 1e-6)).all())


def test_16_bit_activations_have_no_codes():
    with pytest.raises(UsageError, match="not quantized"):
        quantize_activations(normal(1, 8), NumberFormat.parse("w8a16_int8"))


@pytest.mark.parametrize("name", EIGHT_BIT_ACTIVATIONS)
def test_rows_with_zeros_or_nan(name):
    a = normal(4, 256)
    a[1] = 0
    a[2, 3] = float("nan")
    a[3, 3] = float("inf")
    values = dequantize_activations(quantize_activations(a, NumberFormat.parse(name)))
    assert bool(values[0].isfinite().all())
    assert bool((values[1] == 0).all())
    assert bool(values[2:, :128].isnan().all())
    assert bool(values[2:, 128:].isfinite().all()) is (name == "w8a8_fp8_block")


def test_a_tie_is_allowed_for_and_nothing_else_is():
    a = torch.tensor([[127.0, 2.5, 3.25, -0.5]])
    weight = quantize(torch.ones(1, 4, 1), NumberFormat.parse("w8a8_int8"), torch.float32)
    found = expected(a, weight)
    codes = quantize_activations(a, weight.format).codes
    assert codes.tolist() == [[127, 2, 3, 0]]  # ties to even
    assert float(found.ties.most) == pytest.approx(2)  # 2.5 and -0.5 may be 3 and -1
    assert float(found.ties.shift) == pytest.approx(0)
    assert float(found.ties.squares) == pytest.approx(2)
    assert found.fp8_sums is None
    assert expected(a, quantize(torch.ones(1, 4, 1), NumberFormat.parse("bf16"))).ties is None
