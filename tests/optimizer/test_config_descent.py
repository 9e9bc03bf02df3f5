"""Which configurations of a kernel are timed: few, and the good ones among them."""

from __future__ import annotations

from itertools import product

import pytest

from kernel_compass.optimizer.config_descent import descended
from kernel_compass.optimizer.step_proposers.triton_configs import neighbours
from kernel_compass.records.step_capture import SourceLine, StepLaunch
from kernel_compass.records.step_loop import ConfigTime

SIZES = (16, 32, 64, 128, 256)


def launch(**config):
    line = SourceLine("step.py", 1, "matmul_kernel")
    return StepLaunch(0, 0, "matmul_kernel", "0" * 64, line, (1,), config, {})


def matmul_us(config):
    """Tiles that read operands again, registers that spill, idle warps, waits between tiles."""
    m, n, k, warps = (config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps"))
    each = m * n / (32 * warps)
    read = 2.0e4 * (1 / m + 1 / n)
    if each > 128:
        return None if each > 512 else 4 * read
    return (read + 200 + 6000 / (k * min(m, n)) ** 0.5) * (1 + 0.3 * max(0.0, 8 - each))


class Bench:
    def __init__(self, space, time_us):
        self.space, self.time_us, self.rounds = space, time_us, []

    def __call__(self, places):
        self.rounds.append(places)
        return [ConfigTime(self.time_us(self.space[i])) for i in places]

    @property
    def asked(self):
        return [i for some in self.rounds for i in some]


@pytest.mark.parametrize("sizes", list(product((16, 32, 64), repeat=3))[::2])
def test_a_good_tile_is_found_from_a_poor_one(sizes):
    now = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), sizes, strict=True), num_warps=8)
    space = neighbours(launch(**now))
    bench = Bench(space, matmul_us)
    found = descended(space, 40, bench)
    best = min(t for one in space if (t := matmul_us(one)) is not None)
    assert len(bench.asked) == len(set(bench.asked)) == len(found) <= 40 < len(space)
    assert min(one.time_us for one in found.values() if one.time_us) <= 1.05 * best


def test_a_small_space_is_timed_whole_and_at_once():
    space = neighbours(launch(BLOCK=128, num_warps=1))
    bench = Bench(space, lambda one: one["BLOCK"] * 1.0)
    assert len(descended(space, 40, bench)) == len(space) == 24
    assert len(bench.rounds) == 1


def test_where_nothing_runs_it_ends():
    space = neighbours(launch(BLOCK_M=64, BLOCK_N=64, num_warps=4, num_stages=3))
    found = descended(space, 40, Bench(space, lambda one: None))
    assert len(found) == 40 and all(one.time_us is None for one in found.values())


def test_what_runs_only_far_away_is_gone_to():
    space = neighbours(launch(BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, num_warps=8))
    alone = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 4}
    assert alone in space
    found = descended(space, 40, Bench(space, lambda one: 1.0 if dict(one) == alone else None))
    assert any(one.time_us == 1.0 for one in found.values())
