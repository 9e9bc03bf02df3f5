"""The wider kernels on a GPU: every format against float64, in graphs, bit by bit repeatable."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="kernels need torch")

import mla_conformance as mla  # noqa: E402
import wider_conformance as conformance  # noqa: E402

from kernel_compass.kernels.providers.own_wider import OWN_FP8_BLOCK, OWN_W8A8  # noqa: E402
from kernel_compass.records.contracts import Target  # noqa: E402
from kernel_compass.records.number_format import NumberFormat  # noqa: E402
from kernel_compass.records.workload import Op, Workload  # noqa: E402

pytestmark = pytest.mark.gpu
SHAPES = (
    (16, 1, 128, 512),
    (16, 64, 512, 128),
    (3, 5, 100, 70),
    (1, 130, 257, 33),
    (2, 16, 2000, 200),
    (1, 1, 1, 1),
)
each_pair = pytest.mark.parametrize(
    "implementation, name", conformance.PAIRS, ids=conformance.name_of
)


def target():
    return Target("cuda", torch.cuda.get_device_capability())


def supported(implementation, name, workload):
    """The implementation's objection is the reason of the skip."""
    reason = implementation.supports(workload, NumberFormat.parse(name), target())
    if reason is not None:
        pytest.skip(reason)


def case(implementation, name, shape, config=None):
    supported(implementation, name, Workload(Op.BMM, *shape))
    return conformance.Case(torch, implementation, name, shape, config, "cuda")


@each_pair
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_product_of_the_quantized_operands(implementation, name, shape):
    conformance.check_dense(case(implementation, name, shape), torch.bfloat16)


@each_pair
def test_float16_activations(implementation, name):
    conformance.check_dense(case(implementation, name, (16, 4, 128, 512)), torch.float16)


@each_pair
@pytest.mark.parametrize("offset", [0, 1])
def test_views_are_read_and_written_where_they_lie(implementation, name, offset):
    conformance.check_strided(case(implementation, name, (8, 9, 128, 96)), torch.bfloat16, offset)


@each_pair
def test_empty_linear_and_other_numbers_of_rows(implementation, name):
    prepared = case(implementation, name, (4, 1, 192, 100))
    conformance.check_empty(prepared, torch.bfloat16)
    conformance.check_other_tokens(prepared, torch.bfloat16, 77)
    conformance.check_linear(torch, implementation, name, torch.bfloat16, "cuda")


@each_pair
@pytest.mark.parametrize("depth", [128, 1536])
def test_a_row_does_not_depend_on_its_batch(implementation, name, depth):
    conformance.check_rows_alone(case(implementation, name, (4, 64, depth, 128)), torch.bfloat16)


@each_pair
@pytest.mark.parametrize("depth", [128, 1000])
def test_hostile_activations(implementation, name, depth):
    hard = case(implementation, name, (4, 16, depth, 96))
    for _, a in conformance.hostile_activations(hard, torch.bfloat16):
        hard.check(a, hard.run(a))


@each_pair
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_shows_it_and_spoils_no_other(implementation, name, bad):
    for depth in (128, 1000):
        conformance.check_not_finite(
            case(implementation, name, (4, 16, depth, 96)), torch.bfloat16, bad
        )


@each_pair
def test_configurations_from_all_over_the_space(implementation, name):
    shape = (8, 16, 512, 256)
    workload = Workload(Op.BMM, *shape)
    supported(implementation, name, workload)
    space = implementation.space(workload, NumberFormat.parse(name), target())
    for config in space[:: max(1, len(space) // 8)]:
        conformance.check_dense(case(implementation, name, shape, config), torch.bfloat16)


def test_an_int8_row_does_not_depend_on_the_tile():
    shape = (4, 16, 512, 256)
    space = OWN_W8A8.space(Workload(Op.BMM, *shape), NumberFormat.parse("w8a8_int8"), target())
    outputs = []
    for config in space[:: max(1, len(space) // 6)]:
        prepared = case(OWN_W8A8, "w8a8_int8", shape, config)
        outputs.append(prepared.run(prepared.activations(torch.bfloat16)))
    assert len(outputs) > 4 and all(torch.equal(outputs[0], other) for other in outputs)


def captured(call):
    """A graph of one call, after calls outside it that compile."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


@each_pair
def test_a_graph_follows_what_its_operands_become(implementation, name):
    prepared = case(implementation, name, (16, 4, 128, 512))
    a = prepared.activations(torch.bfloat16)
    out = torch.empty((16, 4, 512), dtype=torch.bfloat16, device="cuda")
    graph = captured(lambda: prepared.run(a, out))
    a.mul_(-3).add_(0.25)
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    prepared.check(a, out)
    assert torch.equal(out, prepared.run(a))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["w8a8_int8", "w8a8_fp8", "w8a8_fp8_block"])
@pytest.mark.parametrize("rows", [1, 64])
def test_the_deepest_linear(name, rows):
    """K = 16384: e4m3 sums must not stay in the tensor core."""
    implementation = OWN_FP8_BLOCK if name.endswith("block") else OWN_W8A8
    conformance.check_dense(case(implementation, name, (1, rows, 16384, 1024)), torch.bfloat16)


each_mla_format = pytest.mark.parametrize("name", mla.FORMATS)


@each_mla_format
@pytest.mark.parametrize("rows", [1, 7, 64, 130])
def test_the_query_is_the_product_beside_the_rotation(name, rows):
    from kernel_compass.kernels.q_absorb_rope import RopeStyle

    query = mla.Query(torch, name, rows, "cuda")
    for style in RopeStyle:
        out = query.run(style=style)
        query.check(out, style)
        assert torch.equal(out, query.run(style=style))


@each_mla_format
@pytest.mark.parametrize("scale", [1.0, 0.002])
def test_the_e4m3_query_in_a_graph(name, scale):
    query = mla.Query(torch, name, 9, "cuda")
    out = torch.zeros((9, 16, 640), dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn)
    view, by = out[..., 32:608], torch.tensor([scale], device="cuda")
    graph = captured(lambda: query.run(out=view, out_scale=by))
    query.nope.mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    query.check_e4m3(view, float(by[0]))
    assert (out[..., :32].float() == 0).all() and (out[..., 608:].float() == 0).all()


@each_mla_format
def test_a_row_of_the_query_does_not_depend_on_its_batch(name):
    from kernel_compass.kernels.q_absorb_rope import default_config

    query = mla.Query(torch, name, 64, "cuda")
    config = default_config(Workload(Op.BMM, 16, 64, 128, 512), target().capability)
    assert torch.equal(query.row(13).run(config=config)[0], query.run(config=config)[13])


@each_mla_format
@pytest.mark.parametrize("rows", [1, 7, 64, 130])
def test_the_value_projection_in_groups(name, rows):
    from kernel_compass.kernels.v_up_group_quant import v_up_group_quant

    x, weight, packed = mla.values(torch, name, (16, rows, 512, 128), "cuda")
    codes, scales = v_up_group_quant(x, packed)
    mla.check_groups(x, weight, codes, scales)
    again = v_up_group_quant(x, packed)
    assert torch.equal(codes.view(torch.uint8), again[0].view(torch.uint8))
    assert torch.equal(scales, again[1])


def test_the_value_projection_in_a_graph_and_row_by_row():
    from kernel_compass.kernels.v_up_group_quant import default_config, v_up_group_quant

    x, _, packed = mla.values(torch, "bf16", (16, 64, 512, 128), "cuda")
    config = default_config(Workload(Op.BMM, 16, 64, 512, 128), target().capability)
    codes, scales = v_up_group_quant(x, packed, config=config)
    graph = captured(lambda: v_up_group_quant(x, packed, out=codes, scales=scales, config=config))
    x.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    alone = v_up_group_quant(x[13:14], packed, config=config)
    assert torch.equal(alone[0].float(), codes[13:14].float())
    assert torch.equal(alone[1], scales[13:14])
