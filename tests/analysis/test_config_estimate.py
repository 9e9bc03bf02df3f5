"""The estimate of configurations: what must hold of it whatever its constants are fitted to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernel_compass.analysis.config_constants import H200
from kernel_compass.analysis.config_estimate import estimates_us
from kernel_compass.analysis.config_geometry import geometry
from kernel_compass.codec.recorded_space import read
from kernel_compass.kernels.decode import DecodeConfig, space
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload

SPACES = Path(__file__).parents[2] / "benchmarks/results/h200/spaces"
FP8 = NumberFormat.parse("w8a16_fp8")
SHAPES = [(128, 1, 128, 512), (128, 64, 512, 128), (16, 16, 512, 128), (1, 16, 14336, 4096)]


@pytest.mark.parametrize("name", ["bf16", "w8a16_fp8", "w4a16_gk", "w4a16_g128"])
@pytest.mark.parametrize("sizes", SHAPES)
def test_every_configuration_has_a_finite_time(sizes, name):
    w, f = Workload(Op.BMM, *sizes), NumberFormat.parse(name)
    launches = [geometry(c.as_config(), w, f, 132) for c in space(w, f, True)]
    warm, cold = (estimates_us(launches, c, 132, H200) for c in (False, True))
    assert np.isfinite(warm).all()
    assert (warm > 0.5).all()
    assert (cold >= warm).all()


def test_what_a_launch_consists_of():
    """Counted by hand: 32 fragments in tiles of 4, 128 heads, 4 tiles of 16 tokens."""
    config = DecodeConfig("mma", 1, 4, rows=128, tokens=16).as_config()
    g = geometry(config, Workload(Op.BMM, 128, 64, 128, 512), FP8, 132)
    assert g.programs == 8 * 128 * 4
    assert g.weight_bytes == 128 * 128 * 512
    assert g.requested_bytes == 4 * 128 * 128 * 512 + 4096 * 16 * 128 * 2
    assert g.flops == 2 * 128 * 64 * 128 * 512
    assert g.steps == 1


def test_what_was_compiled_replaces_what_is_guessed():
    config = DecodeConfig("mma", 1, 4, rows=128, tokens=16).as_config()
    w = Workload(Op.BMM, 128, 64, 128, 512)
    few = geometry(config, w, FP8, 132, {"registers": 255.0, "shared_bytes": 0.0})
    assert few.resident == 2


def test_more_work_takes_longer():
    config = DecodeConfig("mma", 1, 4, rows=128, tokens=16).as_config()
    launches = [
        geometry(config, Workload(Op.BMM, h, 16, 128, 512), FP8, 132) for h in (16, 64, 256)
    ]
    assert list(np.diff(estimates_us(launches, True, 132, H200)) > 0) == [True, True]


def times(configs, workload, cold=False):
    launches = [geometry(c.as_config(), workload, FP8, 132) for c in configs]
    return estimates_us(launches, cold, 132, H200)


def test_a_fence_costs_where_warps_are_many_and_pays_where_they_are_few():
    """As measured: 1.03 to 1.10 times slower warm with 128 heads, and faster with 16."""
    chained = DecodeConfig("mma", 1, 1, chains=4, rows=128)
    pair = [replace(chained, hold=hold) for hold in (False, True)]
    many = times(pair, Workload(Op.BMM, 128, 64, 512, 1024))
    few = times(pair, Workload(Op.BMM, 4, 1, 512, 128), cold=True)
    assert many[1] > many[0]
    assert few[1] < few[0]


def test_more_warps_along_k_pay_where_a_program_is_long_and_few():
    """K of 14336 is one program's work for a head of few columns; K of 128 is not worth sharing."""
    configs = [DecodeConfig("mma", 1, 1, warps_k=k, rows=32) for k in (1, 2, 4)]
    long = times(configs, Workload(Op.LINEAR, 1, 1, 14336, 4096))
    short = times(configs, Workload(Op.BMM, 128, 1, 128, 4096))
    assert list(np.diff(long) < 0) == [True, True]
    assert short[2] > short[1]


@pytest.mark.parametrize("file", sorted(SPACES.glob("*.json.gz")), ids=lambda f: f.name)
def test_as_many_warps_fit_as_by_compilations(file):
    """Recorded spaces hold what every configuration compiled to."""
    found = read(file)
    points = [p for p in found.points if p.config["kernel"] == "mma" and "registers" in p.static]
    names, compiled = (
        np.array(
            [geometry(p.config, found.workload, found.format, 132, s(p)).occupancy for p in points]
        )
        for s in (lambda p: None, lambda p: p.static)
    )
    ratios = np.abs(np.log2(names / compiled))
    assert np.mean(ratios) < 0.25
    assert np.quantile(ratios, 0.9) < 0.7
