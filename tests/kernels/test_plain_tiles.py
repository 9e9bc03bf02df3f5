"""Spaces of configurations of the plain kernels, and what their tiles have in common."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kernel_cases import torch_with_interpreter

torch_with_interpreter()

from kernel_compass.kernels import (  # noqa: E402
    fp8_block,
    plain_tiles,
    q_absorb_rope,
    study_w4a16,
    study_w8a8,
    v_up_group_quant,
    w8a8,
)
from kernel_compass.records.workload import Op, Workload  # noqa: E402

CAPABILITIES = [None, (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
SIZES = [(128, 1, 128, 512), (128, 4, 512, 128), (1, 64, 16384, 7168), (1, 1, 40, 7)]
OWN = [w8a8, fp8_block, q_absorb_rope, v_up_group_quant]


def of(sizes):
    return Workload(Op.BMM, *sizes)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kernel", [*OWN, study_w8a8, study_w4a16], ids=lambda k: k.__name__)
def test_a_space_starts_with_the_rule_and_names_each_configuration_once(kernel, sizes, capability):
    space = kernel.space(of(sizes), capability)
    assert space[0] == kernel.default_config(of(sizes), capability)
    assert len({tuple(config.items()) for config in space}) == len(space)
    assert len(space) > (10 if kernel in OWN else 1)
    assert len({tuple(config) for config in space}) == 1  # the same names, in the same order


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_configuration_is_worth_compiling_the_rules_too(sizes, capability):
    for kernel in (w8a8, q_absorb_rope, v_up_group_quant):
        for config in kernel.space(of(sizes), capability):
            assert kernel.fits(config, of(sizes), capability)
    assert all(fp8_block.fits(c, capability) for c in fp8_block.space(of(sizes), capability))


def test_the_default_comes_first_whether_it_fits_or_not():
    choices = {"a": (1, 2, 3), "b": (False, True)}
    found = plain_tiles.space_of({"a": 2, "b": True}, choices, lambda config: config["a"] > 1)
    assert [tuple(c.values()) for c in found] == [(2, True), (2, False), (3, False), (3, True)]
    assert plain_tiles.space_of({"a": 9}, choices, lambda config: False) == [{"a": 9}]


@pytest.mark.parametrize(
    "rows, wanted", [(1, 16), (16, 16), (17, 32), (64, 64), (65, 64), (5000, 64)]
)
def test_rows_of_a_tile(rows, wanted):
    assert plain_tiles.row_tile(of((1, rows, 128, 128)), 64) == wanted


def test_weights_are_the_left_operand_from_hopper_on_while_rows_are_few():
    assert plain_tiles.weights_left(32, (9, 0)) and plain_tiles.weights_left(16, (10, 0))
    assert not plain_tiles.weights_left(64, (9, 0))
    assert not plain_tiles.weights_left(16, (8, 9)) and not plain_tiles.weights_left(16, None)


@pytest.mark.parametrize(
    "capability, size",
    [
        ((8, 0), 166_912),
        ((8, 6), 101_376),
        ((8, 7), 166_912),
        ((8, 9), 101_376),
        ((9, 0), 232_448),
        ((10, 3), 232_448),
        ((12, 0), 101_376),
        ((7, 5), 101_376),
    ],
)
def test_shared_memory_is_that_of_the_newest_known_or_the_least(capability, size):
    assert plain_tiles.shared_limit(capability) == size


def test_a_grid_covers_ragged_outputs():
    y = SimpleNamespace(shape=(3, 33, 129))
    assert plain_tiles.tile_grid({"BLOCK_M": 16, "BLOCK_N": 64}, y) == (9, 3)
