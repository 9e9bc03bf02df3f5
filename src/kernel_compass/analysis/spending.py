"""How much of the error rate a look may spend.

Looking again and again at growing data finds "differences" by chance. Lan & DeMets (Biometrika
70, 1983): fix how much of alpha is spent by which share of the data; the boundary of a look is the
level at which a Brownian path that has not crossed before crosses with exactly what the look may
spend, found by recursive integration (Armitage, McPherson & Rowe 1969; Jennison & Turnbull, *Group
Sequential Methods*, 2000, ch. 19). The number and place of later looks need not be known.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from kernel_compass.analysis.pairing import Array

_POINTS = 401
_REACH = 8.0
"""Standard deviations below 0 where a path is given up."""


def power_spending(alpha: float, power: float, fractions: tuple[float, ...]) -> tuple[float, ...]:
    """Alpha spent up to each fraction of the data, alpha t^power (Kim & DeMets 1987).

    1 spends as the data comes (near Pocock: stops early), 3 keeps it for the end (near
    O'Brien-Fleming).
    """
    return tuple(alpha * fraction**power for fraction in fractions)


@lru_cache(maxsize=256)
def nominal_levels(spent: tuple[float, ...], fractions: tuple[float, ...]) -> tuple[float, ...]:
    """The one-sided significance level of each look.

    Args:
        spent: alpha spent up to each look, one-sided, rising.
        fractions: share of the data at each look, rising, at most 1.

    Returns:
        P(Z > boundary) of each look, for an ordinary test at that look alone.
    """
    levels: list[float] = []
    paths = _Paths()
    before_spent = before = 0.0
    for total, fraction in zip(spent, fractions, strict=True):
        boundary = paths.boundary(total - before_spent, fraction - before)
        paths.advance(boundary, fraction, fraction - before)
        levels.append(_tail(boundary / math.sqrt(fraction)))
        before_spent, before = total, fraction
    return tuple(levels)


class _Paths:
    """Density of the Brownian paths that have not crossed; at first all of them, at 0."""

    def __init__(self) -> None:
        self._at: Array = np.zeros(1)
        self._mass: Array = np.ones(1)

    def boundary(self, spend: float, step: float) -> float:
        """The value that a share `spend` of all paths first exceeds after `step`."""
        low, high = -_REACH, 40.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._beyond(middle, step) > spend else (low, middle)
        return (low + high) / 2

    def _beyond(self, value: float, step: float) -> float:
        tails = _tails((value - self._at) / math.sqrt(step))
        return float(self._mass @ tails)

    def advance(self, boundary: float, fraction: float, step: float) -> None:
        """Go on by `step` with the paths that stay under the boundary."""
        at, weights = _simpson(-_REACH * math.sqrt(fraction), boundary)
        jump = (at[:, None] - self._at[None, :]) / math.sqrt(step)
        kernel = np.exp(-0.5 * jump**2) / math.sqrt(2 * math.pi * step)
        self._at, self._mass = at, (kernel @ self._mass) * weights


def _simpson(low: float, high: float) -> tuple[Array, Array]:
    at = np.linspace(low, high, _POINTS)
    weights = np.full(_POINTS, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return at, weights * (high - low) / (_POINTS - 1) / 3


def _tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


_tails = np.vectorize(_tail, otypes=[np.float64])


def normal_quantile(upper_tail: float) -> float:
    """The z that P(Z > z) = `upper_tail`."""
    return NormalDist().inv_cdf(1.0 - upper_tail)
