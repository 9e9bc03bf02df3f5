"""The first study's 8-bit kernels in Triton's interpreter against float64."""

from __future__ import annotations

import pytest
from kernel_cases import INTERPRETER_WARNING, torch_with_interpreter

torch = torch_with_interpreter()

import wider_conformance as conformance  # noqa: E402

from kernel_compass.kernels.providers.own_wider import STUDY_W8A8  # noqa: E402

pytestmark = pytest.mark.filterwarnings(INTERPRETER_WARNING)
FORMATS = ("w8a8_int8", "w8a8_fp8")
CONFIGS = (
    {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3},
    {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 128, "num_warps": 4, "num_stages": 2},
)


def case(name, shape=(2, 5, 200, 150), config=None):
    return conformance.Case(torch, STUDY_W8A8, name, shape, config)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", conformance.SHAPES)
def test_it_is_the_product_of_the_quantized_operands(name, shape):
    dtype = torch.float16 if shape[1] == 5 else torch.bfloat16
    conformance.check_dense(case(name, shape), dtype)


@pytest.mark.parametrize("name", FORMATS[:2])
@pytest.mark.parametrize("config", CONFIGS)
def test_every_kind_of_tile_computes_it(name, config):
    conformance.check_dense(case(name, (1, 20, 300, 70), config), torch.bfloat16)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("offset", [0, 1])
def test_views_are_read_and_written_where_they_lie(name, offset):
    conformance.check_strided(case(name), torch.bfloat16, offset)


@pytest.mark.parametrize("name", FORMATS[:1])
def test_no_rows_give_an_empty_output(name):
    conformance.check_empty(case(name), torch.bfloat16)


@pytest.mark.parametrize("name", FORMATS[:1])
def test_more_rows_than_it_was_prepared_for(name):
    conformance.check_other_tokens(case(name, (2, 1, 200, 70)), torch.bfloat16, 37)


@pytest.mark.parametrize("name", FORMATS)
def test_linear(name):
    conformance.check_linear(torch, STUDY_W8A8, name, torch.bfloat16, "cpu")


@pytest.mark.parametrize("name", FORMATS[:2])
def test_a_row_does_not_depend_on_its_batch(name):
    conformance.check_rows_alone(case(name, (2, 20, 300, 40)), torch.bfloat16)


@pytest.mark.parametrize("name", FORMATS[:2])
def test_hostile_activations(name):
    hard = case(name, (1, 6, 300, 40))
    kinds = dict(conformance.hostile_activations(hard, torch.bfloat16))
    assert len(kinds) == len(conformance.HOSTILE)
    for a in kinds.values():
        hard.check(a, hard.run(a))


@pytest.mark.parametrize("name", FORMATS[:2])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_row_that_is_not_finite_shows_it_and_spoils_no_other(name, bad):
    conformance.check_not_finite(case(name, (2, 4, 300, 40)), torch.bfloat16, bad)
