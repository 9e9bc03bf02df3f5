"""The estimate of configurations: what must hold of it whatever its constants are fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_compass.analysis.config_constants import H200
from kernel_compass.analysis.config_estimate import estimates_us, geometry
from kernel_compass.kernels.decode import DecodeConfig, space
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload

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
