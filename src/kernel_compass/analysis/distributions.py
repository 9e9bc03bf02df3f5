"""Quantiles of Student's t and chi-squared, without scipy.

The regularized incomplete beta and gamma functions by their continued fraction and series
(Abramowitz & Stegun 26.5.8 and 6.5.29; modified Lentz), inverted by regula falsi.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300
_STEPS = 10_000
_EPSILON = 1e-14
_ROOT_STEPS = 100
_EPSILON_ROOT = 1e-12


def t_upper_tail(t: float, dof: float) -> float:
    """P(T > t) of Student's t with `dof` degrees of freedom."""
    half = 0.5 * _incomplete_beta(dof / 2, 0.5, dof / (dof + t * t))
    return half if t >= 0 else 1.0 - half


@lru_cache(maxsize=4096)
def t_quantile(upper_tail: float, dof: float) -> float:
    """The t that P(T > t) = `upper_tail`.

    Args:
        upper_tail: in (0, 0.5].
        dof: degrees of freedom, > 0.
    """
    return _where(lambda t: t_upper_tail(t, dof), upper_tail)


@lru_cache(maxsize=1024)
def chi2_quantile(upper_tail: float, dof: float) -> float:
    """The x that P(X > x) = `upper_tail`, X chi-squared with `dof` degrees of freedom."""
    return _where(lambda x: 1.0 - _incomplete_gamma(dof / 2, x / 2), upper_tail)


def _where(tail: Callable[[float], float], target: float) -> float:
    """Where a falling tail probability of x >= 0 meets its target (regula falsi, Illinois).

    In the logarithm, in which tails are nearly straight: about ten evaluations.
    """
    aim = math.log(target)
    low, high = 0.0, 1.0
    above, below = math.log(tail(low)) - aim, _log(tail(high)) - aim
    while below > 0:
        low, above, high = high, below, high * 2
        below = _log(tail(high)) - aim
    side = 0
    for _ in range(_ROOT_STEPS):
        middle = (low * below - high * above) / (below - above)
        height = _log(tail(middle)) - aim
        if abs(height) < _EPSILON_ROOT or high - low < _EPSILON_ROOT * high:
            break
        if height > 0:
            low, above, below = middle, height, below / 2 if side > 0 else below
            side = 1
        else:
            high, below, above = middle, height, above / 2 if side < 0 else above
            side = -1
    return middle


def _log(probability: float) -> float:
    return math.log(max(probability, _TINY))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b); the continued fraction is used on the side where it converges fast."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _EPSILON:
            break
    return value


def _incomplete_gamma(a: float, x: float) -> float:
    """P(a, x) by its series: all terms positive, so it holds for every x asked for here."""
    if x <= 0.0:
        return 0.0
    term = total = 1.0 / a
    for n in range(1, _STEPS):
        term *= x / (a + n)
        total += term
        if term < total * _EPSILON:
            break
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
