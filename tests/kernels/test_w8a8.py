"""8-bit products in Triton's interpreter against float64."""

from __future__ import annotations

import pytest
from kernel_cases import INTERPRETER_WARNING, torch_with_interpreter

torch = torch_with_interpreter()

import wider_conformance as conformance  # noqa: E402

from kernel_compass.kernels import w8a8  # noqa: E402
from kernel_compass.kernels.providers.own_wider import OWN_W8A8  # noqa: E402
from kernel_compass.records.workload import Op, Workload  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)
FORMATS = ("w8a8_int8", "w8a8_fp8")
CONFIGS = (
    {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "SWAP": True, "num_warps": 4, "num_stages": 3},
    {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64, "SWAP": False, "num_warps": 2, "num_stages": 2},
    {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 1024, "SWAP": True, "num_warps": 8, "num_stages": 1},
)


def case(name, shape=(3, 5, 100, 70), config=None):
    return conformance.Case(torch, OWN_W8A8, name, shape, config)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", conformance.SHAPES)
def test_it_is_the_product_of_the_quantized_operands(name, shape):
    dtype = torch.float16 if shape[1] == 5 else torch.bfloat16
    conformance.check_dense(case(name, shape), dtype)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", [(2, 5, 300, 70), (1, 40, 256, 64)])
def test_every_kind_of_tile_computes_it(name, config, shape):
    conformance.check_dense(case(name, shape, config), torch.bfloat16)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("offset", [0, 1])
def test_views_are_read_and_written_where_they_lie(name, offset):
    conformance.check_strided(case(name), torch.bfloat16, offset)


@pytest.mark.parametrize("name", FORMATS)
def test_no_rows_give_an_empty_output(name):
    conformance.check_empty(case(name), torch.bfloat16)


@pytest.mark.parametrize("name", FORMATS)
def test_more_rows_than_it_was_prepared_for(name):
    conformance.check_other_tokens(case(name, (2, 1, 100, 70)), torch.bfloat16, 37)


@pytest.mark.parametrize("name", FORMATS)
def test_linear(name):
    conformance.check_linear(torch, OWN_W8A8, name, torch.bfloat16, "cpu")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("depth", [100, 600])
def test_a_row_does_not_depend_on_its_batch(name, depth):
    conformance.check_rows_alone(case(name, (2, 20, depth, 40)), torch.bfloat16)


def test_an_int8_row_does_not_depend_on_the_tile():
    a = case("w8a8_int8", (2, 20, 600, 40)).activations(torch.bfloat16)
    outputs = [case("w8a8_int8", (2, 20, 600, 40), config).run(a) for config in CONFIGS]
    assert all(torch.equal(outputs[0], other) for other in outputs)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("depth", [100, 600])
def test_hostile_activations(name, depth):
    hard = case(name, (2, 6, depth, 40))
    kinds = dict(conformance.hostile_activations(hard, torch.bfloat16))
    assert len(kinds) == len(conformance.HOSTILE)
    for a in kinds.values():
        hard.check(a, hard.run(a))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("depth", [100, 600])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_is_not_finite_shows_it_and_spoils_no_other(name, depth, bad):
    conformance.check_not_finite(case(name, (2, 4, depth, 40)), torch.bfloat16, bad)


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize(
    "sizes", [(128, 1, 128, 512), (1, 64, 16384, 7168), (8, 64, 128, 512), (1, 1, 40, 7)]
)
def test_the_space_starts_with_the_rule_and_names_each_configuration_once(sizes, capability):
    workload = Workload(Op.BMM, *sizes)
    space = w8a8.space(workload, capability)
    assert space[0] == w8a8.default_config(workload, capability)
    assert len({tuple(config.items()) for config in space}) == len(space) > 10
    assert all(w8a8.fits(config, workload, capability) for config in space)
