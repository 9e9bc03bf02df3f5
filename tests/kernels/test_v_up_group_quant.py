"""MLA's value projection with grouped e4m3 output, in Triton's interpreter against float64."""

from __future__ import annotations

import pytest
from kernel_cases import INTERPRETER_WARNING, torch_with_interpreter

torch = torch_with_interpreter()

import mla_conformance as mla  # noqa: E402

from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.kernels import v_up_group_quant as kernel  # noqa: E402
from kernel_compass.kernels.v_up_group_quant import v_up_group_quant  # noqa: E402
from kernel_compass.records.number_format import Code  # noqa: E402
from kernel_compass.records.workload import Op, Workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)


def operands(name, rows, heads=2, depth=512, columns=128):
    return mla.values(torch, name, (heads, rows, depth, columns))


@pytest.mark.parametrize("name", ["bf16", "fp16", "w8a16_int8", "w8a16_fp8"])
def test_codes_and_scales_are_those_of_the_product(name):
    x, weight, packed = operands(name, 5)
    codes, scales = v_up_group_quant(x, packed)
    assert codes.shape == (5, 256) and scales.shape == (5, 2)
    mla.check_groups(x, weight, codes, scales)
    again = v_up_group_quant(x, packed)
    assert torch.equal(codes.view(torch.uint8), again[0].view(torch.uint8))
    assert torch.equal(scales, again[1])


@pytest.mark.parametrize("sizes", [(1, 3, 100, 256), (17, 1, 33, 128), (3, 2, 1, 128)])
def test_any_depth_and_several_groups_a_head(sizes):
    x, weight, packed = operands("w8a16_int8", *sizes)
    mla.check_groups(x, weight, *v_up_group_quant(x, packed))


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("name", ["bf16", "w8a16_fp8"])
def test_every_kind_of_tile(name, swap):
    x, weight, packed = operands(name, 40, 1)
    config = {"BLOCK_M": 32, "BLOCK_K": 128, "SWAP": swap, "num_warps": 4, "num_stages": 2}
    mla.check_groups(x, weight, *v_up_group_quant(x, packed, config=config))


def test_it_writes_where_it_is_told_and_nowhere_else():
    x, weight, packed = operands("bf16", 4)
    codes = torch.zeros((4, 300), dtype=torch.uint8).view(torch.float8_e4m3fn)
    by_columns = torch.empty((2, 4)).t()
    found = v_up_group_quant(x, packed, out=codes[:, 3:259], scales=by_columns)
    assert found[1] is by_columns
    mla.check_groups(x, weight, *found)
    beside = torch.cat([codes[:, :3].float(), codes[:, 259:].float()], 1)
    assert (beside == 0).all()


def test_no_rows():
    x, _, packed = operands("bf16", 0)
    codes, scales = v_up_group_quant(x, packed)
    assert codes.shape == (0, 256) and scales.shape == (0, 2)


def test_a_row_does_not_depend_on_its_batch():
    x, _, packed = operands("bf16", 20)
    config = kernel.default_config(Workload(Op.BMM, 2, 20, 512, 128), (9, 0))
    codes, scales = v_up_group_quant(x, packed, config=config)
    alone = v_up_group_quant(x[13:14], packed, config=config)
    assert torch.equal(alone[0].float(), codes[13:14].float())
    assert torch.equal(alone[1], scales[13:14])


def test_zeros_huge_and_tiny_rows():
    x, weight, packed = operands("bf16", 4)
    x = x.clone()
    x[0] = 0
    x[1] *= 2.0**90
    x[2] *= 2.0**-90
    codes, scales = v_up_group_quant(x, packed)
    assert (codes[0].float() == 0).all() and scales.isfinite().all()
    mla.check_groups(x[1:], weight, codes[1:], scales[1:])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows_in_the_scale_of_its_row(bad):
    x, _, packed = operands("bf16", 3)
    clean_codes, clean_scales = v_up_group_quant(x, packed)
    x[1, :, 7] = bad
    codes, scales = v_up_group_quant(x, packed)
    assert not scales[1].isfinite().any()
    assert torch.equal(scales[0::2], clean_scales[0::2])
    assert torch.equal(codes[0::2].float(), clean_codes[0::2].float())


def test_operands_that_do_not_fit_are_refused():
    x, _, packed = operands("bf16", 3, columns=96)
    with pytest.raises(UsageError, match="96 columns"):
        v_up_group_quant(x, packed)
    x, _, packed = operands("bf16", 3)
    with pytest.raises(UsageError, match="scales"):
        v_up_group_quant(x, packed, scales=torch.empty(3, 3))
    with pytest.raises(UsageError, match="x has shape"):
        v_up_group_quant(x[..., :-1], packed)


def test_traffic_counts_every_operand_once():
    traffic = kernel.traffic(Workload(Op.BMM, 128, 2, 512, 128), Code.BF16)
    assert traffic.weight_bytes == 2 * 128 * 512 * 128
    assert traffic.output_bytes == 2 * 128 * (128 + 4)
