"""Quantiles against scipy's."""

from __future__ import annotations

import pytest
from scipy import stats

from kernel_compass.analysis.distributions import chi2_quantile, t_quantile, t_upper_tail


@pytest.mark.parametrize("dof", [1, 2, 4, 7, 15, 60, 479, 5000])
@pytest.mark.parametrize("tail", [0.5, 0.2, 0.025, 0.005, 7.8e-5, 1e-9])
def test_student_t(dof: float, tail: float) -> None:
    assert t_quantile(tail, dof) == pytest.approx(stats.t.isf(tail, dof), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("t", [-40.0, -1.3, 0.0, 0.4, 2.0, 9.0])
def test_tail_of_student_t(t: float) -> None:
    for dof in (1, 4, 30.5, 800):
        assert t_upper_tail(t, dof) == pytest.approx(stats.t.sf(t, dof), rel=1e-9)


@pytest.mark.parametrize("dof", [2, 4, 7, 35, 120])
@pytest.mark.parametrize("tail", [0.975, 0.5, 0.025, 0.001])
def test_chi_squared(dof: float, tail: float) -> None:
    assert chi2_quantile(tail, dof) == pytest.approx(stats.chi2.isf(tail, dof), rel=1e-7)
