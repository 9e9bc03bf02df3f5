"""What the GPU tests run is what `legal` allows, and it does not allow everything."""

from __future__ import annotations

import pytest
from decode_cases import ODD_CONFIGS, ODD_FORMATS, ODD_SHAPES

from kernel_compass.kernels.decode import legal
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload


@pytest.mark.parametrize("name", ODD_FORMATS)
@pytest.mark.parametrize("config", ODD_CONFIGS, ids=str)
def test_configurations_of_the_gpu_tests_are_legal(name, config):
    for shape in ODD_SHAPES:
        assert legal(config, Workload(Op.BMM, *shape), NumberFormat.parse(name)), shape


def test_a_program_wider_than_the_weight_is_not():
    narrow = Workload(Op.BMM, 1, 40, 512, 64)
    refused = [c for c in ODD_CONFIGS if not legal(c, narrow, NumberFormat.parse("bf16"))]
    assert [c.fragments * c.warps_n for c in refused] == [8, 8, 8, 8]
