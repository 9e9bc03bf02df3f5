"""Rows to 8-bit codes, on a CPU, in Triton's interpreter and on a GPU."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="activations are tensors: torch is not installed")

import torch

from kernel_compass.kernels.providers.activations import quantize_rows, scaled
from kernel_compass.kernels.references import quantize_activations
from kernel_compass.records.number_format import Code, NumberFormat

NAMES = {Code.INT8: "w8a8_int8", Code.FP8: "w8a8_fp8"}
STEP = {Code.INT8: 1.0, Code.FP8: 32.0}
"""The widest distance of neighbouring codes."""


def rows(device: str) -> Any:
    """Strided rows of mixed sizes; one of zeros, one with ties."""
    random = torch.Generator().manual_seed(3)
    values = torch.randn(7, 208, generator=random)[:, :200] * torch.logspace(-6, 6, 7)[:, None]
    values[2] = 0
    values[3] = torch.arange(200) % 128 - 0.5
    values[3, 0] = 127
    wide = torch.zeros(7, 216, dtype=torch.bfloat16)
    wide[:, :200] = values
    return wide.to(device)[:, :200]


def compare(device: str, code: Code, exact: bool) -> None:
    a = rows(device)
    codes, scales = quantize_rows(a, code, at_least=16)
    wanted = quantize_activations(a, NumberFormat.parse(NAMES[code]))
    assert codes.shape == (16, 200)
    assert torch.allclose(scales, wanted.scales, rtol=1e-6, atol=0)
    distance = (codes[:7].float() - wanted.codes.float()).abs()
    # a quotient on the edge between two codes may fall either way; few lie there
    assert float(distance.max()) <= STEP[code]
    assert int((distance > 0).sum()) <= (0 if exact else 20)


@pytest.mark.parametrize("code", list(NAMES))
def test_rows_are_quantized_as_the_reference_does(code: Code) -> None:
    compare("cpu", code, exact=True)


@pytest.mark.gpu
@pytest.mark.parametrize("code", list(NAMES))
def test_the_kernel_does_as_the_reference(code: Code) -> None:
    compare("cuda", code, exact=False)


@pytest.mark.gpu
def test_the_scaling_kernel_scales_rows_and_columns() -> None:
    product = torch.randint(-(2**20), 2**20, (9, 1500), dtype=torch.int32, device="cuda")
    row, column = torch.rand(5, 1, device="cuda"), torch.rand(1500, device="cuda")
    room = torch.full((5, 1600), 7.0, dtype=torch.bfloat16, device="cuda")
    into = room[:, 50:1550]
    assert scaled(product, row, column, into) is into
    wanted = (product[:5].double() * row.double() * column.double()).to(torch.bfloat16)
    assert torch.allclose(into.float(), wanted.float(), rtol=2.0**-7, atol=0)
    assert bool((room[:, :50] == 7).all())
    assert bool((room[:, 1550:] == 7).all())


@pytest.mark.parametrize("code", list(NAMES))
def test_a_row_that_is_not_finite_says_so(code: Code) -> None:
    a = rows("cpu").clone()
    a[0, 5], a[1, 6] = float("nan"), float("inf")
    _, scales = quantize_rows(a, code)
    assert scales[:2].isnan().all()
    assert scales[2:].isfinite().all()


INTERPRETED = """
import torch
from kernel_compass.kernels.providers import activation_kernels as kernels
from kernel_compass.kernels.quantize_rows import launch_quantize_rows
a = torch.randn(5, 208, generator=torch.Generator().manual_seed(1))[:, :200]
a[1] = 0
a[2, 3] = float("nan")
codes = torch.full((8, 200), 99, dtype=torch.int8)
scales = torch.empty(5, 1)
launch_quantize_rows(a[None], codes[None], scales)
wanted = a.abs().amax(1, keepdim=True) / 127
assert torch.allclose(scales[[0, 3, 4]], wanted[[0, 3, 4]], rtol=1e-6), scales
assert scales[1] == 1 and scales[2].isnan(), scales
good = (a / wanted).round()[[0, 3, 4]]
assert (codes[[0, 3, 4]].float() - good).abs().max() <= 1
assert (codes[[0, 3, 4]].float() != good).sum() <= 3
assert (codes[1] == 0).all() and (codes[5:] == 99).all()
product = torch.randint(-1000, 1000, (8, 200), dtype=torch.int32)
out = torch.full((5, 220), 7.0)
row, column = torch.rand(5, 1), torch.rand(200)
kernels.launch_scaled(product, row, column, out[:, 10:210])
assert torch.allclose(out[:, 10:210], product[:5] * row * column, rtol=1e-5)
assert (out[:, :10] == 7).all() and (out[:, 210:] == 7).all()
print("as wanted")
"""


def test_the_kernels_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="the kernels are Triton's: triton is not installed")
    path = [p for p in sys.path if p.endswith("src")]
    program = (
        "import os, sys\nos.environ['TRITON_INTERPRET'] = '1'\n"
        f"sys.path[:0] = {path!r}\n{INTERPRETED}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "as wanted", done.stderr[-2000:]
