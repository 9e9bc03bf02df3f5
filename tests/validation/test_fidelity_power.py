"""How often honest kernels are rejected and mistakes are not; `benchmarks/fidelity_power.py`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="outputs are tensors of PyTorch")

from fidelity_power import KINDS, SHAPES, operands, power  # noqa: E402

from kernel_compass.kernels.quantize import quantize  # noqa: E402
from kernel_compass.kernels.references import (  # noqa: E402
    dequantize,
    dequantize_activations,
    expected,
    quantize_activations,
    rounded_part,
    rounding_ways,
)
from kernel_compass.records.number_format import EXAMPLES, NumberFormat  # noqa: E402
from kernel_compass.validation.fidelity import check_fidelity  # noqa: E402

SHORT = [shape for shape in SHAPES if shape[2] <= 1000]
EIGHT_BIT_ACTIVATIONS = ["w8a8_fp8", "w8a8_fp8_block", "w8a8_int8"]


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", EXAMPLES)
def test_honest_kernels_pass_and_mistakes_do_not(name):
    """Numbers that the table in docs/kernels.md does not use."""
    honest = power(name, range(1000, 1020), with_mistakes=False, shapes=SHORT)
    assert honest.rejected == []
    record = power(name, range(2000, 2000 + len(KINDS)), shapes=SHORT)
    assert record.rejected == []
    assert record.mistakes.total() >= 70
    assert record.found_of_plain >= 0.95, record.passed
    assert record.found_of_visible >= 0.85, record.passed


@pytest.mark.parametrize("name", EIGHT_BIT_ACTIVATIONS)
@pytest.mark.parametrize(("rows", "reduction"), [(1, 512), (16, 512), (16, 4096)])
def test_small_mistakes_of_the_whole_are_found(name, rows, reduction):
    torch.manual_seed(rows + reduction)
    a, w = operands("normal", (1, rows, reduction, 128))
    weight = quantize(w, NumberFormat.parse(name))
    reference = expected(a, weight)
    left = dequantize_activations(quantize_activations(a, weight.format))
    tail = left[..., :-32] @ dequantize(weight)[:, :-32]
    for wrong in (reference.value * 1.005, reference.value * 0.995, tail):
        assert not check_fidelity(wrong.bfloat16(), reference).passed
    right = check_fidelity(reference.value.bfloat16(), reference)
    assert right.passed
    assert right.relative_frobenius < 2e-3


@pytest.mark.parametrize("name", ["w4a16_g32_asym", "w4a16_g128", "w8a16_int8"])
def test_rounded_weights_of_sums_that_cancel_pass(name):
    torch.manual_seed(0)
    a, w = torch.randn(3, 5, 256), torch.randn(3, 256, 64)
    w[:, 1::2], a[..., 1::2] = -w[:, ::2], 1.001 * a[..., ::2]
    a, weight = a.bfloat16(), quantize(w, NumberFormat.parse(name))
    reference = expected(a, weight)
    for way in rounding_ways(weight.format):
        rounded = rounded_part(weight, slice(0, 3), slice(0, 64), way)
        output = (a.float() @ rounded.float()).bfloat16()
        found = check_fidelity(output, reference, rounded_weights=True)
        assert found.passed, found.reason
        halved = check_fidelity(output / 2, reference, rounded_weights=True)
        assert not halved.passed


def test_rows_that_round_their_ties_in_different_ways_pass_and_their_mixture_does_not():
    """One scale's ties fall together: all towards zero, all away, or to even."""
    a = ((torch.arange(1, 129) % 96) / 16 - 3).bfloat16().repeat(1, 4, 1)
    a[..., 0] = 4
    torch.manual_seed(0)
    weight = quantize(torch.randn(1, 128, 96), NumberFormat.parse("w8a8_fp8"), torch.float32)
    reference = expected(a, weight)
    away, towards = (
        (a.double() * 112 * (1 + off)).clamp(-448, 448).to(torch.float8_e4m3fn).double() / 112
        for off in (1e-6, -1e-6)
    )
    assert int((away != towards).sum()) >= 4 * 8
    values = dequantize(weight)
    rows = torch.cat((away[:, :2], towards[:, 2:]), 1)
    found = check_fidelity((rows @ values).bfloat16(), reference)
    assert found.passed, found.reason
    mixed = torch.where(torch.rand(128) < 0.5, away, towards)
    assert not check_fidelity((mixed @ values).bfloat16(), reference).passed
