"""The wider kernels in Triton's interpreter: every implementation and format against float64."""

from __future__ import annotations

import pytest
from kernel_cases import INTERPRETER_WARNING, torch_with_interpreter

torch = torch_with_interpreter()

import wider_conformance as conformance  # noqa: E402

from kernel_compass.kernels.providers.own_wider import WIDER  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)
TESTED = conformance.TESTED
SHAPE = (2, 5, 200, 150)
DEEP = [(*pair, depth) for each in TESTED for depth in each.depths for pair in each.pairs()]
TILES = [(*pair, config) for each in TESTED for config in each.configs for pair in each.pairs()]
each_pair = pytest.mark.parametrize("one, name", conformance.PAIRS, ids=conformance.name_of)
each_format = pytest.mark.parametrize(
    "one, name",
    [pair for tested in TESTED for pair in tested.pairs(rare=True)],
    ids=conformance.name_of,
)
each_depth = pytest.mark.parametrize("one, name, depth", DEEP, ids=conformance.name_of)


def case(one, name, shape=SHAPE, config=None):
    return conformance.Case(torch, one, name, shape, config)


def test_every_implementation_is_tested():
    assert {tested.implementation for tested in TESTED} == set(WIDER)


@each_pair
@pytest.mark.parametrize("shape", conformance.SHAPES, ids=str)
def test_it_is_the_product_of_the_quantized_operands(one, name, shape):
    dtype = torch.float16 if shape[1] == 5 else torch.bfloat16
    conformance.check_dense(case(one, name, shape), dtype)


@pytest.mark.parametrize("one, name, config", TILES, ids=conformance.name_of)
@pytest.mark.parametrize("shape", [(2, 5, 300, 70), (1, 40, 256, 64)], ids=str)
def test_every_kind_of_tile_computes_it(one, name, config, shape):
    conformance.check_dense(case(one, name, shape, config), torch.bfloat16)


@each_format
@pytest.mark.parametrize("offset", [0, 1])
def test_views_are_read_and_written_where_they_lie(one, name, offset):
    conformance.check_strided(case(one, name), torch.bfloat16, offset)


@each_pair
def test_no_rows_give_an_empty_output(one, name):
    conformance.check_empty(case(one, name), torch.bfloat16)


@each_pair
def test_more_rows_than_it_was_prepared_for(one, name):
    conformance.check_other_tokens(case(one, name, (2, 1, 200, 70)), torch.bfloat16, 37)


@each_format
def test_linear(one, name):
    conformance.check_linear(torch, one, name, torch.bfloat16, "cpu")


@each_depth
def test_a_row_does_not_depend_on_its_batch(one, name, depth):
    conformance.check_rows_alone(case(one, name, (2, 20, depth, 40)), torch.bfloat16)


@each_depth
def test_hostile_activations(one, name, depth):
    hard = case(one, name, (2, 6, depth, 40))
    kinds = dict(conformance.hostile_activations(hard, torch.bfloat16))
    assert len(kinds) == len(conformance.HOSTILE)
    for a in kinds.values():
        hard.check(a, hard.run(a))


@each_depth
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_is_not_finite_shows_it_and_spoils_no_other(one, name, depth, bad):
    conformance.check_not_finite(case(one, name, (2, 4, depth, 40)), torch.bfloat16, bad)
