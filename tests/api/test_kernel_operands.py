"""Operands of torch, and its own products checked on the CPU through the registry."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec

import pytest
from api.fake_kernels import formats

from kernel_compass.api.kernel_cells import Bench
from kernel_compass.api.kernel_operands import TorchOperands
from kernel_compass.api.kernel_requests import TableRequest, sweep_items
from kernel_compass.api.kernel_tables import TableRun
from kernel_compass.kernels.providers import registry
from kernel_compass.measurement.simulated import SimulatedDevice
from kernel_compass.records.kernel_table import Layout
from kernel_compass.records.workload import Op, Workload

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

BMM = Workload(Op.BMM, 4, 3, 128, 64)
LINEAR = Workload(Op.LINEAR, 1, 3, 256, 96)
(W4,) = formats("w4a16_gk")


def case_of(workload, name="bf16", layout=Layout.SERVING, operands=None):
    (number_format,) = formats(name)
    return (operands or TorchOperands("cpu")).case(workload, number_format, layout)


def test_serving_layout_is_a_view_of_tokens_first():
    case = case_of(BMM)
    out = case.new_output()
    assert tuple(case.a.shape) == (4, 3, 128)
    assert case.a.stride() == (128, 4 * 128, 1)
    assert out.stride() == (64, 4 * 64, 1)
    assert bool(out.isnan().all())
    dense = case_of(BMM, layout=Layout.CONTIGUOUS)
    assert dense.a.is_contiguous() and dense.new_output().is_contiguous()


def test_a_linear_weight_is_held_as_columns_by_reduction():
    case = case_of(LINEAR)
    assert tuple(case.a.shape) == (3, 256)
    assert tuple(case.weight.codes.shape) == (1, 256, 96)
    assert case.weight.codes.stride()[1] == 1


def test_the_weight_is_the_same_for_every_batch_size_and_not_for_another_shape():
    operands = TorchOperands("cpu")
    one = case_of(BMM, "w4a16_gk", operands=operands)
    other = case_of(Workload(Op.BMM, 4, 7, 128, 64), "w4a16_gk", operands=operands)
    assert one.weight.codes is other.weight.codes
    assert operands.same(one.weight.codes, other.weight.codes.clone())
    wide = case_of(Workload(Op.BMM, 4, 3, 128, 80), "w4a16_gk", operands=operands)
    assert tuple(wide.weight.codes.shape) == (4, 128, 80)
    assert not operands.same(one.weight.codes, wide.weight.codes)


def test_the_same_seed_gives_the_same_operands():
    assert bool((case_of(BMM).a == case_of(BMM).a).all())
    other = case_of(BMM, operands=TorchOperands("cpu", seed=1))
    assert not bool((case_of(BMM).a == other.a).all())


@pytest.mark.parametrize("workload", [BMM, LINEAR])
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("bf16", 0.1, 0.25), ("w8a16_fp8", 2.0, 3.3), ("w4a16_gk", 8.0, 16.0)],
)
def test_an_exact_product_has_the_error_of_its_format(workload, name, low, high):
    from kernel_compass.kernels.references import product

    case = case_of(workload, name)
    out = case.new_output()
    out.copy_(product(case.a, case.weight))
    found = case.check(out, "own_decode")
    assert found.fault is None
    assert 0.05 < found.fidelity_error_pct < 0.25
    assert low < found.format_error_pct < high


def test_outputs_that_are_not_written_or_wrong_are_faults():
    case = case_of(BMM)
    left = case.check(case.new_output(), "own_decode")
    assert left.fault.startswith("not_finite")
    assert left.format_error_pct is None
    assert case.check(case.new_output().zero_(), "own_decode").fault is not None


@pytest.mark.parametrize("layout", [Layout.SERVING, Layout.CONTIGUOUS])
def test_torch_itself_passes_and_a_kernel_that_drops_a_column_does_not(layout):
    request = TableRequest(
        sweep_items(4, 128, [64, 72], [1, 16]),
        formats("bf16"),
        implementations=("cublas_bf16",),
        layout=layout,
    )
    bench = Bench(SimulatedDevice(), TorchOperands("cpu"), registry)
    named, failed = TableRun(request, bench).marked(lambda _: nullcontext(), 1)
    assert failed == []
    assert len(named) == 4

    class Dropping:
        def __init__(self, one):
            self.one = one

        def __getattr__(self, name):
            return getattr(self.one, name)

        def run(self, prepared, streamed, a, out=None):
            self.one.run(prepared, streamed, a, out)
            out[..., -1] = 0

    class Choices:
        implementation = staticmethod(registry.implementation)

        @staticmethod
        def implementations_for(*asked):
            usable, refused = registry.implementations_for(*asked)
            return [Dropping(one) for one in usable if one.name == "cublas_bf16"], refused

    bench = Bench(SimulatedDevice(), TorchOperands("cpu"), Choices)
    named, failed = TableRun(request, bench).marked(lambda _: nullcontext(), 1)
    assert named == []
    assert len(failed) == 4 and all("frobenius" in text for text in failed)


def rounding_weights(case):
    """What a library gives that rounds scaled weights to bf16 before the product."""
    import torch

    from kernel_compass.kernels.references import dequantize

    rounded = dequantize(case.weight).to(torch.bfloat16).double()
    return case.new_output().copy_(case.a.double() @ rounded)


def adding_in_bf16(case):
    """What a library gives that adds up shares of K in bf16."""
    from kernel_compass.kernels.references import dequantize

    weight, a = dequantize(case.weight), case.a.double()
    out = case.new_output().zero_()
    for k in range(0, 128, 16):
        out.add_((a[..., k : k + 16] @ weight[:, k : k + 16]).to(out.dtype))
    return out


def test_libraries_are_allowed_what_their_sources_round_and_no_more():
    from kernel_compass.kernels.references import product

    case = case_of(BMM, "w4a16_gk")
    out = adding_in_bf16(case)
    assert case.check(out, "gemlite_w4a16").fault is None
    assert case.check(out, "own_decode").fault is not None
    assert case.check(rounding_weights(case), "humming_w4a16").fault is None
    broken = product(case.a, case.weight).roll(1, 0)
    for name in ("gemlite_w4a16", "humming_w4a16", "torchao_int8_dynamic", "own_decode"):
        assert case.check(case.new_output().copy_(broken), name).fault is not None


def test_a_library_that_quantizes_activations_its_own_way_is_judged_as_a_whole():
    from kernel_compass.kernels.references import product

    case = case_of(BMM, "w8a8_int8")
    exact = case.new_output().copy_(product(case.a, case.weight))
    found = case.check(exact, "torchao_int8_dynamic")
    assert found.fault is None
    assert found.fidelity_error_pct < 0.3
    noisy = exact + 0.05 * exact.std() * exact.clone().normal_()
    assert case.check(noisy, "torchao_int8_dynamic").fault.startswith("frobenius")
