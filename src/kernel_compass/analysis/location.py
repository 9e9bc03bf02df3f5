"""The typical log ratio of a run of pairs, and how far off it may be.

The location is the 20 % trimmed mean: nearly as efficient as the mean on clean noise, untouched
by up to a fifth of disturbed pairs on either side, and smooth where a coarse timer makes the
median jump. Its error has two estimates, and the wider interval counts, because each fails where
the other holds:

- *groups*: the run is cut into 8 to 12 stretches of successive pairs; Student's t over the
  locations of these. Whatever is correlated over less than a stretch is in it, whatever its form
  (Ibragimov & Mueller, J. Bus. Econ. Stat. 28, 2010). Too narrow where the run is short.
- *serial*: the winsorized variance (Tukey & McLaughlin 1963) over the effective number of pairs
  n (1 - r) / (1 + r), with r the lag-1 correlation corrected for its bias (Kendall 1954). Holds
  in short runs; blind to slow wander.

A bootstrap over pairs is not used: it is too narrow under correlation, and in blocks still so at
these sizes (`benchmarks/comparison_power.py --coverage`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kernel_compass.analysis.distributions import t_quantile
from kernel_compass.analysis.pairing import Array
from kernel_compass.errors import UsageError
from kernel_compass.records.comparison import MIN_PAIRS

TRIM = 0.2
GROUPS = (8, 12)
"""Fewest stretches that give a usable t, most that add to it."""
STRETCH = 33
"""Pairs of a stretch beyond the fewest: what is correlated over less is seen."""
SMALLEST_STRETCH = 3
_LARGEST_CORRELATION = 0.97


@dataclass(frozen=True)
class Error:
    """A standard error and the degrees of freedom it rests on."""

    standard: float
    dof: int

    def half_width(self, upper_tail: float) -> float:
        """Half of the interval that leaves `upper_tail` beyond either end."""
        return self.standard * t_quantile(upper_tail, self.dof)


@dataclass(frozen=True)
class Location:
    """Where a run of log ratios lies."""

    center: float
    pairs: int
    groups: Error
    serial: Error

    def half_width(self, upper_tail: float) -> float:
        """The wider of what the two errors give, `upper_tail` beyond either end."""
        return max(self.groups.half_width(upper_tail), self.serial.half_width(upper_tail))

    @property
    def pair_noise(self) -> float:
        """Standard deviation of one pair, serial correlation included."""
        return self.groups.standard * math.sqrt(self.pairs)


def locate(logs: Array) -> Location:
    """Location and error of log ratios in the order measured.

    Raises:
        UsageError: too few pairs.
    """
    if logs.size < MIN_PAIRS:
        raise UsageError(
            f"{logs.size} pairs cannot show how far off their ratio may be.",
            f"Measure at least {MIN_PAIRS}; the default rule looks first at 50.",
        )
    return Location(trimmed_mean(logs), int(logs.size), _groups(logs), _serial(logs))


def trimmed_mean(values: Array) -> float:
    """Mean of what is left without the lowest and the highest fifth."""
    ordered = np.sort(values)
    cut = int(TRIM * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean())


def _group_locations(logs: Array) -> Array:
    """Trimmed means of successive stretches; fewer than 8 only where these fell under 3 pairs."""
    fewest, most = GROUPS
    count = min(max(fewest, logs.size // STRETCH), most, logs.size // SMALLEST_STRETCH)
    return np.array([trimmed_mean(group) for group in np.array_split(logs, count)])


def _groups(logs: Array) -> Error:
    locations = _group_locations(logs)
    return Error(float(locations.std(ddof=1)) / math.sqrt(locations.size), locations.size - 1)


def _serial(logs: Array) -> Error:
    ordered, n = np.sort(logs), logs.size
    cut = int(TRIM * n)
    kept = np.clip(logs, ordered[cut], ordered[n - cut - 1])
    deviations = kept - kept.mean()
    variance = float(deviations @ deviations) / (n - 1)
    if variance == 0.0:
        return Error(0.0, n - 2 * cut - 1)
    r = float(deviations[1:] @ deviations[:-1]) / (variance * (n - 1))
    r = min(max(r + (1 + 3 * r) / n, 0.0), _LARGEST_CORRELATION)
    effective = n * (1 - r) / (1 + r)
    share = 1 - 2 * TRIM
    # whole degrees of freedom, rounded down: conservative, and the quantiles are kept
    return Error(math.sqrt(variance / effective) / share, max(int(share * effective) - 1, 1))
