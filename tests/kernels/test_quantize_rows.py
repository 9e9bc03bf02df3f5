"""Rows to 8-bit codes in Triton's interpreter against the reference."""

from __future__ import annotations

import pytest
from kernel_cases import HOSTILE, INTERPRETER_WARNING, gaussian, strided, torch_with_interpreter

torch = torch_with_interpreter()

from kernel_compass.kernels import quantize_rows as module  # noqa: E402
from kernel_compass.kernels.quantize import LARGEST  # noqa: E402
from kernel_compass.kernels.quantize_rows import launch_quantize_rows  # noqa: E402
from kernel_compass.kernels.references import TIE_WIDTH as EDGE  # noqa: E402
from kernel_compass.kernels.references import quantize_activations  # noqa: E402
from kernel_compass.records.number_format import NumberFormat  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)
CODES = {"w8a8_int8": torch.int8, "w8a8_fp8": torch.float8_e4m3fn}
each_format = pytest.mark.parametrize("name", CODES)
each_road = pytest.mark.parametrize("block", [64, 16_384], ids=["read twice", "held"])


def nearest(ratio, name):
    largest = LARGEST[NumberFormat.parse(name).activation]
    ratio = ratio.clamp(-largest, largest)
    return (ratio.round() if name == "w8a8_int8" else ratio.to(CODES[name])).double()


def codes_and_scales(a, name):
    codes = torch.empty(a.shape, dtype=CODES[name])
    scales = torch.full(a.shape[:2], 7.0)
    launch_quantize_rows(a, codes, scales)
    return codes, scales


@each_format
@each_road
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_codes_and_scales_are_those_of_the_reference(monkeypatch, name, block, kind, dtype):
    monkeypatch.setattr(module, "LONGEST_BLOCK", block)
    values = HOSTILE[kind](torch, gaussian(torch, 2, 5, 200))
    a = strided(torch, values, dtype)
    codes, scales = codes_and_scales(a, name)
    wanted = quantize_activations(a, NumberFormat.parse(name)).scales
    assert torch.equal(scales, wanted[..., 0])
    # a quotient on the edge between two codes may fall either way
    low, high = (nearest(a.double() / wanted.double() * (1 + w), name) for w in (-EDGE, EDGE))
    found = codes.double()
    assert ((found == low) | (found == high)).all()
    assert (low != high).sum() <= 0.05 * low.numel()


@each_format
@each_road
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_is_not_finite_has_no_scale_and_spoils_no_other(monkeypatch, name, block, bad):
    monkeypatch.setattr(module, "LONGEST_BLOCK", block)
    a = gaussian(torch, 2, 3, 200)
    clean_codes, clean_scales = codes_and_scales(a, name)
    a[1, 2, 150] = bad
    codes, scales = codes_and_scales(a, name)
    assert scales[1, 2].isnan()
    rest = torch.ones(2, 3, dtype=bool)
    rest[1, 2] = False
    assert torch.equal(scales[rest], clean_scales[rest])
    assert torch.equal(codes[rest].float(), clean_codes[rest].float())
