"""MLA's query, absorbed and rotated in one launch, in Triton's interpreter against float64."""

from __future__ import annotations

import pytest
from kernel_cases import INTERPRETER_WARNING, gaussian, torch_with_interpreter

torch = torch_with_interpreter()

import mla_conformance as mla  # noqa: E402

from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.kernels import q_absorb_rope as kernel  # noqa: E402
from kernel_compass.kernels.plain_layouts import pack_plain  # noqa: E402
from kernel_compass.kernels.q_absorb_rope import RopeStyle  # noqa: E402
from kernel_compass.records.number_format import Code, NumberFormat  # noqa: E402
from kernel_compass.records.workload import Op, Workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)


def query_of(name, rows, sizes=None, dtype=None):
    return mla.Query(torch, name, rows, "cpu", sizes, dtype)


@pytest.mark.parametrize("style", RopeStyle)
@pytest.mark.parametrize("name", ["bf16", "fp16", "w8a16_int8", "w8a16_fp8"])
def test_it_is_the_product_beside_the_rotation(name, style):
    query = query_of(name, 5)
    out = query.run(style=style)
    query.check(out, style)
    assert torch.equal(out, query.run(style=style))


@pytest.mark.parametrize(
    "rows, sizes", [(1, (3, 100, 70, 6)), (17, (1, 33, 5, 2)), (2, (2, 300, 130, 64))]
)
def test_nothing_needs_to_be_a_multiple_of_anything(rows, sizes):
    query = query_of("w8a16_fp8", rows, sizes)
    query.check(query.run())


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("name", ["bf16", "w8a16_int8"])
def test_every_kind_of_tile(name, swap):
    config = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "SWAP": swap}
    query = query_of(name, 40)
    query.check(query.run(config={**config, "num_warps": 4, "num_stages": 2}))


@pytest.mark.parametrize("offset", [0, 1])
def test_it_writes_into_the_buffer_it_is_given_and_nowhere_else(offset):
    query = query_of("bf16", 4)
    buffer = torch.full((4, 2, 96 + 64 + 8), 7.0, dtype=torch.bfloat16)
    out = buffer[..., offset : offset + 160]
    assert query.run(out=out) is out
    query.check(out)
    assert (buffer[..., :offset] == 7).all() and (buffer[..., offset + 160 :] == 7).all()


@pytest.mark.parametrize("scale", [None, 0.013, 0.002])
def test_an_e4m3_query_is_divided_by_its_scale_and_saturates(scale):
    query = query_of("w8a16_int8", 6)
    out = torch.empty((6, 2, 160), dtype=torch.float8_e4m3fn)
    query.run(out=out, out_scale=None if scale is None else torch.tensor([scale]))
    value = query.check_e4m3(out, 1.0 if scale is None else float(torch.tensor(scale)))
    assert (value.abs().max() > 448) == (scale == 0.002)


def test_no_rows_give_an_empty_query():
    assert query_of("bf16", 0).run().shape == (0, 2, 160)


def test_a_row_does_not_depend_on_its_batch():
    query = query_of("bf16", 20)
    config = kernel.default_config(Workload(Op.BMM, 2, 20, 128, 96), (9, 0))
    assert torch.equal(query.row(13).run(config=config)[0], query.run(config=config)[13])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_not_finite_stays_in_its_row():
    query, clean = query_of("bf16", 3), query_of("bf16", 3)
    query.nope[1, :, 5] = float("nan")
    query.pe[2, :, 0] = float("inf")
    out, other = query.run(), clean.run()
    assert out[1, :, :96].isnan().all() and not out[2, :, 96].isfinite().any()
    assert torch.equal(out[0], other[0]) and torch.equal(out[1, :, 96:], other[1, :, 96:])
    codes = query.run(out=torch.empty((3, 2, 160), dtype=torch.float8_e4m3fn))
    assert codes[1, :, :96].float().isnan().all()


def test_operands_that_do_not_fit_are_refused():
    query = query_of("bf16", 3)
    query.positions = query.positions[:2]
    with pytest.raises(UsageError, match="positions"):
        query.run()
    query = query_of("bf16", 3)
    query.table = query.table[:, :-2]
    with pytest.raises(UsageError, match="cos_sin"):
        query.run()
    with pytest.raises(UsageError, match="one type"):
        query_of("bf16", 3, dtype=torch.float16).run()
    with pytest.raises(UsageError, match="w8a8_fp8"):
        pack_plain(mla.quantize(gaussian(torch, 1, 8, 8), NumberFormat.parse("w8a8_fp8")))


def test_traffic_counts_every_operand_once():
    traffic = kernel.traffic(Workload(Op.BMM, 128, 2, 128, 512), Code.INT8, 64, 1)
    assert traffic.weight_bytes == 128 * 512 * (128 + 2)
    assert traffic.activation_bytes == 2 * 128 * 192 * 2 + 2 * (64 * 4 + 8)
    assert traffic.output_bytes == 2 * 128 * 576
