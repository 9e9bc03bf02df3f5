"""Budgets against the figures of Gaussian data, and what they must refuse."""

from __future__ import annotations

import pytest

from kernel_compass.api.kernel_checks import check_fidelity, format_budget, format_error
from kernel_compass.errors import UsageError
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.references import dequantize, expected, product
from kernel_compass.records.number_format import EXAMPLES, NumberFormat
from kernel_compass.validation import format_budget as budgets

torch = pytest.importorskip("torch", reason="outputs are tensors of PyTorch")

GAUSSIAN_PCT = {
    # K=128, N=512 and K=512, N=128: numpy, float64, bf16 inputs; percent
    "w8a16_int8": (0.653, 0.752),
    "w8a8_int8": (0.905, 1.076),
    "w8a16_fp8": (2.578, 2.638),
    "w8a8_fp8": (3.638, 3.664),
    "w4a16_g128": (11.870, 11.767),
    "w4a16_g64": (10.840, 10.732),
    "w4a16_g32": (9.766, 9.806),
    "w4a16_g32_asym": (8.118, 8.091),
    "w4a16_g64_asym": (9.107, 9.271),
    "w4a16_g128_asym": (10.065, 10.189),
}
HEAVY_TAILS_PCT = {"w8a16_int8": 1.057, "w8a16_fp8": 2.418, "w4a16_g128": 19.294}
"""t distribution with 4 degrees of freedom, K=128."""


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(torch.bfloat16)


def heavy_tailed(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    squares = sum(torch.randn(*shape, generator=generator) ** 2 for _ in range(4)) / 4
    return (torch.randn(*shape, generator=generator) / squares.sqrt()).to(torch.bfloat16)


@pytest.mark.parametrize("name", GAUSSIAN_PCT)
@pytest.mark.parametrize("shape", [(128, 512), (512, 128)])
def test_gaussian_data_costs_what_it_is_known_to(name, shape):
    weight, a = normal(4, *shape), normal(4, 64, shape[0], seed=1)
    quantized = quantize(weight, NumberFormat.parse(name), torch.float32)
    found = 100 * format_error(a, weight, quantized)
    assert found == pytest.approx(GAUSSIAN_PCT[name][shape[0] == 512], rel=0.03)


@pytest.mark.parametrize("name", HEAVY_TAILS_PCT)
def test_heavy_tails_cost_more_where_steps_are_even(name):
    weight, a = heavy_tailed(16, 128, 512), normal(16, 64, 128, seed=1)
    quantized = quantize(weight, NumberFormat.parse(name), torch.float32)
    found = 100 * format_error(a, weight, quantized)
    assert found == pytest.approx(HEAVY_TAILS_PCT[name], rel=0.10)


def test_one_scale_for_all_of_k_costs_what_its_steps_do():
    """Even steps of width s are s / sqrt(12) off on average; they grow with the largest of K."""
    for reduction in (512, 4096):
        weight, a = normal(1, reduction, 128), normal(1, 16, reduction, seed=1)
        found = format_error(a, weight, quantize(weight, NumberFormat.parse("w4a16_gk")))
        steps = weight.double().abs().amax(1) / 7
        assert found == pytest.approx(float(steps.square().mean() / 12) ** 0.5, rel=0.04)


def test_the_budget_follows_the_tensor():
    a, name = normal(4, 16, 128, seed=1), NumberFormat.parse("w4a16_g128")
    even = format_budget(a, normal(4, 128, 256), name)
    tailed = format_budget(a, heavy_tailed(4, 128, 256), name)
    assert even.limit == pytest.approx(1.05 * even.inherent + 2.5e-3)
    assert 0.12 < even.limit < 0.13
    assert tailed.limit > 1.4 * even.limit


def test_outlier_channels_raise_the_budget_of_even_steps_alone():
    weight, a = normal(1, 512, 128), normal(1, 32, 512, seed=1)
    outliers = a.clone()
    outliers[..., ::100] *= 20

    def cost(name, a):
        return format_budget(a, weight, NumberFormat.parse(name)).inherent

    assert cost("w8a8_int8", outliers) > 2 * cost("w8a8_int8", a)
    assert cost("w8a8_fp8", outliers) < 1.2 * cost("w8a8_fp8", a)
    assert cost("w8a8_fp8_block", outliers) < 1.2 * cost("w8a8_fp8_block", a)


def checked(output, full, budget):
    return budgets.FormatCheck(budgets.format_error(output, full), budget)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_output_that_passes_fidelity_keeps_to_the_budget(name):
    weight, a = heavy_tailed(2, 200, 130), normal(2, 8, 200, seed=1)
    number_format = NumberFormat.parse(name)
    budget = format_budget(a, weight, number_format)
    quantized = quantize(weight, number_format)
    output = expected(a, quantized).value.to(torch.bfloat16)
    assert check_fidelity(output, a, quantized).passed
    assert checked(output, product(a, weight), budget).passed


def test_a_worse_quantizer_breaks_the_budget():
    weight, a = normal(2, 256, 128), normal(2, 8, 256, seed=1)
    full = product(a, weight)
    budget = format_budget(a, weight, NumberFormat.parse("w4a16_g32"))
    worse = quantize(weight, NumberFormat.parse("w4a16_gk"))
    assert not checked(product(a, worse), full, budget).passed
    unscaled = weight.double().round().clamp(-7, 7)
    assert not checked(product(a, unscaled), full, budget).passed
    hole = full.to(torch.bfloat16)
    hole[0, 0, 0] = float("nan")
    assert not checked(hole, full, budget).passed


def test_what_has_no_relative_error():
    a, weight = normal(1, 4, 32), torch.zeros(1, 32, 8)
    with pytest.raises(UsageError, match="not zero"):
        format_budget(a, weight, NumberFormat.parse("w8a16_int8"))
    with pytest.raises(UsageError, match="same operands"):
        budgets.format_error(torch.zeros(2, 3), torch.ones(3, 2))
    with pytest.raises(UsageError, match="no error is relative"):
        budgets.format_error(torch.zeros(0, 3), torch.zeros(0, 3).double())


def test_a_format_no_better_than_zeros_is_refused():
    """One outlier in a group of all K, and activations that do not meet it."""
    weight = normal(1, 512, 4)
    weight[:, 0] = 1000
    a = normal(1, 8, 512, seed=1)
    a[..., 0] = 0
    with pytest.raises(UsageError, match="zeros would be as near"):
        format_budget(a, weight, NumberFormat.parse("w4a16_gk"))
    finer = format_budget(a, weight, NumberFormat.parse("w4a16_g32"))
    assert finer.limit < 0.5
    assert (
        float(dequantize(quantize(weight, NumberFormat.parse("w4a16_gk")))[0, 1:].abs().max()) == 0
    )
