"""Boundaries of the looks against published values, scipy's bivariate normal and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kernel_compass.analysis.spending import nominal_levels, power_spending

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


def boundaries(spent: tuple[float, ...], fractions: tuple[float, ...]) -> list[float]:
    return [float(stats.norm.isf(level)) for level in nominal_levels(spent, fractions)]


def test_published_boundaries() -> None:
    """Five equal looks, 0.025 one-sided: the tables of Lan & DeMets' two spending functions."""
    edge = stats.norm.isf(0.0125)
    obrien_fleming = tuple(float(2 * stats.norm.sf(edge / math.sqrt(t))) for t in FIFTHS)
    pocock = tuple(0.025 * math.log(1 + (math.e - 1) * t) for t in FIFTHS)
    assert boundaries(obrien_fleming, FIFTHS) == pytest.approx(
        [4.877, 3.357, 2.680, 2.290, 2.031], abs=0.002
    )
    assert boundaries(pocock, FIFTHS) == pytest.approx(
        [2.438, 2.427, 2.410, 2.397, 2.386], abs=0.002
    )


@pytest.mark.parametrize("fractions", [(0.3, 0.9), (0.5, 0.501), (0.999, 1.0), (0.02, 1.0)])
def test_two_looks_spend_what_the_bivariate_normal_says(fractions: tuple[float, float]) -> None:
    spent = power_spending(0.02, 1.5, fractions)
    first, second = boundaries(spent, fractions)
    correlation = math.sqrt(fractions[0] / fractions[1])
    joint = stats.multivariate_normal(cov=[[1, correlation], [correlation, 1]])
    assert stats.norm.sf(first) == pytest.approx(spent[0], rel=1e-6)
    assert 1 - joint.cdf([first, second]) == pytest.approx(spent[1], rel=2e-3)


def test_paths_cross_as_often_as_was_spent() -> None:
    fractions = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
    spent = power_spending(0.05, 1.5, fractions)
    rng = np.random.default_rng(5)
    steps = rng.normal(size=(200_000, 5)) * np.sqrt(np.diff((0.0, *fractions)))
    z = steps.cumsum(axis=1) / np.sqrt(fractions)
    crossed = np.logical_or.accumulate(z > np.array(boundaries(spent, fractions)), axis=1)
    assert crossed.mean(axis=0) == pytest.approx(spent, abs=0.0015)


def test_a_later_look_does_not_change_an_earlier_one() -> None:
    fractions = (0.1, 0.4, 1.0)
    spent = power_spending(0.005, 1.5, fractions)
    assert nominal_levels(spent[:2], fractions[:2]) == pytest.approx(
        nominal_levels(spent, fractions)[:2]
    )
