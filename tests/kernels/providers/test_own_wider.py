"""The provider of the wider kernels: what it offers, refuses and says without torch or a GPU."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import kernel_compass
from kernel_compass.kernels.providers.own_wider import (
    LONGEST_REDUCTION,
    OLDEST_CAPABILITY,
    OWN_FP8_BLOCK,
    OWN_W8A8,
    STUDY_W4A16,
    STUDY_W8A8,
    WIDER,
)
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import EXAMPLES, NumberFormat
from kernel_compass.records.workload import Op, Workload

Q_ABSORB = Workload(Op.BMM, 128, 4, 128, 512, "q_absorb")
H200 = Target("cuda", (9, 0), "NVIDIA H200", 132)
A100 = Target("cuda", (8, 0), "NVIDIA A100", 108)
ALL = WIDER
needs_triton = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="kernels need torch, triton"
)


def formats_of(implementation, target):
    return {
        name
        for name in EXAMPLES
        if implementation.supports(Q_ABSORB, NumberFormat.parse(name), target) is None
    }


def test_it_offers_four_implementations_by_their_names():
    names = [implementation.name for implementation in ALL]
    assert names == ["own_w8a8", "own_fp8_block", "study_w4a16", "study_w8a8"]
    assert {implementation.provider for implementation in ALL} == {"own"}


@needs_triton
def test_each_computes_its_formats_and_no_other():
    assert formats_of(OWN_W8A8, H200) == {"w8a8_fp8", "w8a8_int8"}
    assert formats_of(STUDY_W8A8, H200) == {"w8a8_fp8", "w8a8_int8"}
    assert formats_of(OWN_FP8_BLOCK, H200) == {"w8a8_fp8_block"}
    assert formats_of(STUDY_W4A16, H200) == {"w4a16_g128", "w4a16_g32_asym", "w4a16_gk"}


@needs_triton
def test_an_a100_has_no_fp8_arithmetic():
    assert formats_of(OWN_W8A8, A100) == {"w8a8_int8"}
    assert formats_of(OWN_FP8_BLOCK, A100) == set()
    reason = OWN_W8A8.supports(Q_ABSORB, NumberFormat.parse("w8a8_fp8"), A100)
    assert reason == "needs compute capability 8.9; the device has 8.0"


@needs_triton
@pytest.mark.parametrize("version", ["3.5.1", "3.5.0+git5389ed79", "2.3.1", "3.6.0", "3.10.0"])
def test_fp8_by_fp8_needs_the_release_of_triton_that_compiles_it(monkeypatch, version):
    monkeypatch.setattr(importlib.import_module("triton"), "__version__", version)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    products = ((OWN_W8A8, "w8a8_fp8"), (OWN_FP8_BLOCK, "w8a8_fp8_block"), (STUDY_W8A8, "w8a8_fp8"))
    new = version in ("3.6.0", "3.10.0")
    wanted = None if new else f"needs Triton 3.6 or newer, and this is {version}"
    for one, name in products:
        assert one.supports(Q_ABSORB, NumberFormat.parse(name), H200) == wanted
        assert one.supports(Q_ABSORB, NumberFormat.parse(name), Target("cpu")) is None
    for one in (OWN_W8A8, STUDY_W8A8):
        assert one.supports(Q_ABSORB, NumberFormat.parse("w8a8_int8"), H200) is None


class OnGpu:
    """A tensor of a GPU, as far as it is looked at before it is packed."""

    is_cuda = True

    def __init__(self, shape):
        self.shape = shape


@needs_triton
def test_a_weight_whose_product_cannot_be_compiled_is_refused(monkeypatch):
    from kernel_compass.errors import UsageError
    from kernel_compass.kernels.quantized import QuantizedWeight

    monkeypatch.setattr(importlib.import_module("triton"), "__version__", "3.5.1")
    weight = QuantizedWeight(NumberFormat.parse("w8a8_fp8"), OnGpu((2, 8, 8)), OnGpu((2, 1, 8)))
    with pytest.raises(UsageError, match=r"own_w8a8 in w8a8_fp8 needs Triton 3\.6.*3\.5\.1"):
        OWN_W8A8.prepare(weight, Workload(Op.BMM, 2, 1, 8, 8))


@needs_triton
def test_a_cpu_takes_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    reason = OWN_W8A8.supports(Q_ABSORB, NumberFormat.parse("w8a8_int8"), Target("cpu"))
    assert reason is not None and "TRITON_INTERPRET=1" in reason
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert formats_of(OWN_W8A8, Target("cpu")) == {"w8a8_fp8", "w8a8_int8"}


@needs_triton
def test_sums_that_overflow_are_refused():
    deep = Workload(Op.LINEAR, 1, 1, 140_000, 8)
    assert "overflows" in (OWN_W8A8.supports(deep, NumberFormat.parse("w8a8_int8"), H200) or "")
    assert OWN_W8A8.supports(deep, NumberFormat.parse("w8a8_fp8"), H200) is None
    many = Workload(Op.BMM, 70_000, 1, 128, 8)
    assert "65535" in (STUDY_W4A16.supports(many, NumberFormat.parse("w4a16_g128"), H200) or "")


@needs_triton
@pytest.mark.parametrize("implementation", ALL, ids=lambda each: each.name)
def test_the_space_is_never_empty(implementation):
    name = next(name for name in EXAMPLES if name in formats_of(implementation, H200))
    for target in (H200, Target("cpu")):
        space = implementation.space(Q_ABSORB, NumberFormat.parse(name), target)
        assert len(space) > 1 and all("num_warps" in config for config in space)


def test_traffic_is_the_operands_as_stored():
    int4 = STUDY_W4A16.traffic(Q_ABSORB, NumberFormat.parse("w4a16_g32_asym"))
    assert int4.weight_bytes == 128 * 512 * (64 + 4 * 3)
    assert int4.dequantized_weights == 128 * 128 * 512 and int4.math == "bf16"
    blocks = OWN_FP8_BLOCK.traffic(Q_ABSORB, NumberFormat.parse("w8a8_fp8_block"))
    assert blocks.weight_bytes == 128 * (128 * 512 + 4 * 4) and blocks.math == "fp8"
    assert (blocks.activation_bytes, blocks.output_bytes) == (2 * 128 * 4 * 128, 2 * 128 * 4 * 512)
    assert blocks.dequantized_weights == 0 and blocks.flops == 2 * 128 * 4 * 128 * 512


@needs_triton
def test_a_weight_that_does_not_fit_is_refused(monkeypatch):
    torch = pytest.importorskip("torch", reason="kernels need torch")
    from kernel_compass.errors import UsageError
    from kernel_compass.kernels.quantize import quantize

    weight = quantize(torch.ones(2, 8, 8), NumberFormat.parse("w8a8_int8"))
    with pytest.raises(UsageError, match="does not compute w8a8_int8"):
        OWN_FP8_BLOCK.prepare(weight, Workload(Op.BMM, 2, 1, 8, 8))
    with pytest.raises(UsageError, match=r"\(2, 8, 8\).*\(2, 8, 9\)"):
        OWN_W8A8.prepare(weight, Workload(Op.BMM, 2, 1, 8, 9))


def test_without_torch_and_triton_it_says_so():
    code = """
import sys
sys.modules["torch"] = sys.modules["triton"] = None
from kernel_compass.kernels.providers.own_wider import OWN_W8A8
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload
from kernel_compass.errors import MissingDependency
workload, kind = Workload(Op.BMM, 1, 1, 8, 8), NumberFormat.parse("w8a8_int8")
print(OWN_W8A8.supports(workload, kind, Target("cuda", (9, 0))))
try:
    OWN_W8A8.space(workload, kind, Target("cuda", (9, 0)))
except MissingDependency as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(kernel_compass.__file__).parents[1])},
    )
    lines = result.stdout.splitlines()
    assert lines[0].startswith("torch and triton are not installed: pip install")
    assert lines[1].startswith("own_w8a8 needs t") and "pip install" in lines[1]


@needs_triton
@pytest.mark.parametrize("one", WIDER, ids=lambda one: one.name)
def test_limits_that_are_told_without_the_kernel_file_are_its_own(one):
    module = importlib.import_module(f"kernel_compass.kernels.{one.file}")
    for code in one.weights:
        assert OLDEST_CAPABILITY[code] == module.CAPABILITIES[code]
        assert LONGEST_REDUCTION.get(code, 2**31 - 1) == module.LONGEST_REDUCTION[code]
