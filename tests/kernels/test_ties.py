"""The quotients that honest kernels may find: every scale within a unit in the last place."""

from __future__ import annotations

import math

import pytest

from kernel_compass.kernels.ties import quotients

torch = pytest.importorskip("torch", reason="scales are tensors of PyTorch")


@pytest.mark.parametrize("largest", [3.0625, 2.40625, 1.75, 3.96875, 2.0, 449.0, 2.0**-20])
@pytest.mark.parametrize("units", [-1, 0, 1])
def test_the_exact_scale_is_among_them_though_the_reference_is_a_unit_off(largest, units):
    exact = torch.tensor(largest, dtype=torch.float32) / torch.tensor(448.0)
    towards = torch.tensor(math.copysign(math.inf, units))
    given = torch.nextafter(exact, towards) if units else exact
    a = (torch.arange(1, 256).float() / 64 * largest / 4).to(torch.bfloat16)
    wanted = a.float() / exact
    assert any(torch.equal(found, wanted) for found in quotients(a, given.expand(255)))


def test_scales_that_are_not_finite_stay_so():
    a = torch.ones(3, dtype=torch.bfloat16)
    for found in quotients(a, torch.tensor([1.0, math.nan, math.inf])):
        assert found[0].isfinite()
        assert found[1].isnan()
        assert found[2] == 0
