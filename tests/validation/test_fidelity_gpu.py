"""The gate on products of tensor cores: float32 sums pass, sums of 14 bits do not."""

from __future__ import annotations

import pytest

from kernel_compass.api.kernel_checks import check_fidelity
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.references import quantize_activations
from kernel_compass.records.fidelity import FidelityFault
from kernel_compass.records.number_format import NumberFormat

torch = pytest.importorskip("torch", reason="outputs are tensors of PyTorch")

pytestmark = pytest.mark.gpu
DEVICE = "cuda"


def operands(kind, reduction):
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(n, reduction, generator=generator) for n in (64, 512)]
    if kind == "positive":
        drawn = [x.abs() for x in drawn]
    return [x.to(torch.bfloat16).to(DEVICE) for x in drawn]


def fp8_product(a, weight, fast):
    quantized = quantize_activations(a, weight.format)
    return torch._scaled_mm(
        quantized.codes,
        weight.codes[0],
        scale_a=quantized.scales,
        scale_b=weight.scales[0],
        out_dtype=torch.bfloat16,
        use_fast_accum=fast,
    )


@pytest.mark.parametrize("kind", ["normal", "positive"])
@pytest.mark.parametrize("reduction", [128, 512, 4096, 16384])
def test_libraries_that_add_in_float32_pass(kind, reduction):
    a, layer = operands(kind, reduction)
    plain = quantize(linear_weight(layer), NumberFormat.parse("bf16"))
    found = check_fidelity(a @ layer.t(), a, plain)
    assert found.passed, found.reason
    fp8 = quantize(linear_weight(layer), NumberFormat.parse("w8a8_fp8"), torch.float32)
    found = check_fidelity(fp8_product(a, fp8, fast=False), a, fp8)
    assert found.passed, found.reason


def test_fast_accumulation_does_not():
    a, layer = operands("positive", 4096)
    fp8 = quantize(linear_weight(layer), NumberFormat.parse("w8a8_fp8"), torch.float32)
    found = check_fidelity(fp8_product(a, fp8, fast=True), a, fp8)
    assert found.fault in (FidelityFault.FROBENIUS, FidelityFault.NO_BETTER)


@pytest.mark.parametrize("name", ["w8a8_fp8", "w8a8_int8", "w8a8_fp8_block"])
def test_scales_are_those_of_the_cpu(name):
    a = operands("normal", 4096)[0]
    here = quantize_activations(a, NumberFormat.parse(name))
    there = quantize_activations(a.cpu(), NumberFormat.parse(name))
    assert torch.equal(here.scales.cpu(), there.scales)
    assert torch.equal(here.codes.view(torch.uint8).cpu(), there.codes.view(torch.uint8))
    layer = linear_weight(operands("normal", 512)[1])
    weights = [quantize(x, NumberFormat.parse(name)) for x in (layer, layer.cpu())]
    assert torch.equal(weights[0].scales.cpu(), weights[1].scales)
    assert torch.equal(weights[0].codes.view(torch.uint8).cpu(), weights[1].codes.view(torch.uint8))
