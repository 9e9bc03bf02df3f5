"""The strategy `model`: the estimates' best first, then where what was measured points to.

A point is worth what it is expected to improve on the best (expected improvement: Jones, Schonlau
and Welch, J. Global Optimization 13, 1998), less what it is likely to fail. Turns come round:

- expected improvement over the whole space;
- the estimates' best that is near nothing asked: measurements may mislead the expectation, and of
  neighbours that the estimates cannot tell apart one is enough;
- a good estimate with pairs of values that few asked points have (`Coverage`): what the estimates
  have wrong of two dimensions together is found out early;
- a family that nothing was measured of yet, by its best estimate: only that finds out an estimate
  that is wrong for all of it;
- later on, among the neighbours of the best alone, one dimension or a step away.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from kernel_compass.optimizer.search.coverage import Coverage
from kernel_compass.optimizer.search.dimensions import Array, Dimensions, feature_table
from kernel_compass.optimizer.search.progress import Progress
from kernel_compass.optimizer.search.space_inputs import SpaceInputs
from kernel_compass.optimizer.search.surrogate import Surrogate

LOOKED_AT = 512
"""Points whose uncertainty is computed: the best by expectation ..."""
FAR = 64
"""... and those furthest from all that was measured."""
AT_ONCE = 8
"""Points of one question that are chosen one by one; more of them are the next best by estimate."""
FAMILY_TURN = 3
"""Every so many questions are a family's until each has been measured."""
WITHIN = 4.0
"""Families are tried whose best estimate is within this factor of the best."""
ROUND = 6
"""Questions after which the turns come again ..."""
ESTIMATE_TURN, STRANGE_TURN = 0, 3
"""... of which these are the estimates' and the strange ones, ..."""
ROUNDS_END = 60
"""... until so many were asked; then `NEIGHBOUR_TURN` of every three is the neighbours'."""
NEAR_COST = 0.2
"""log(time) by which the estimate of a point beside one that was asked is taken to be worse, ..."""
STRANGE_GAIN = 0.4
"""... and of one all of whose pairs of values are new, to be better."""
NEIGHBOUR_TURN = 3


class Guided:
    """Asks by estimates and what was told; see the module."""

    name = "model"

    def __init__(self, inputs: SpaceInputs, seed: int) -> None:
        self._progress = Progress(inputs.configs)
        self._dimensions = Dimensions(inputs.configs, inputs.groups)
        self._estimates = _log_estimates(inputs)
        features = feature_table(inputs.features)
        self._surrogate = Surrogate(self._dimensions, self._estimates, features)
        count = len(inputs.configs)
        self._free = np.zeros(count, dtype=bool)
        self._free[list(self._progress.distinct)] = True
        random = Random(seed)
        self._ties = np.array([random.random() for _ in range(count)]) * 1e-6
        self._coverage = Coverage(self._dimensions.coordinates)
        self._families = self._dimensions.families(inputs.groups)

    def ask(self, count: int) -> Sequence[int]:
        """See `Strategy`."""
        wanted = self._progress.wanted(count)
        found = [self._take(self._next()) for _ in range(min(wanted, AT_ONCE))]
        if len(found) < wanted:
            order = np.argsort(self._expected() + self._ties, kind="stable")
            rest = order[self._free[order]][: wanted - len(found)]
            found += [self._take(int(index)) for index in rest]
        return found

    def tell(self, index: int, time_us: float | None) -> None:
        """See `Strategy`."""
        self._free[self._progress.tell(index, time_us)] = False

    def _take(self, index: int) -> int:
        self._free[index] = False
        return self._progress.take(index)

    def _next(self) -> int:
        turn = self._progress.asked
        if turn % FAMILY_TURN == 1 and (stranger := self._untried_family()) is not None:
            return stranger
        times = self._measured()
        place = turn % ROUND if turn < ROUNDS_END else None
        if place == ESTIMATE_TURN or not times:
            return self._best(self._estimates + NEAR_COST * self._nearness())
        if place == STRANGE_TURN:
            strange = self._coverage.strangeness(self._asked())
            return self._best(self._estimates - STRANGE_GAIN * strange)
        near = None
        if place is None and turn % NEIGHBOUR_TURN == 0:
            near = self._dimensions.neighbours(min(times, key=times.__getitem__)) & self._free
        return self._improving(times, near if near is not None and near.any() else self._free)

    def _asked(self) -> list[int]:
        return [*self._progress.pending, *self._progress.times]

    def _measured(self) -> dict[int, float]:
        return {i: t for i, t in self._progress.times.items() if t is not None}

    def _best(self, cost: Array) -> int:
        return int(np.argmin(np.where(self._free, cost + self._ties, np.inf)))

    def _nearness(self) -> Array:
        return self._surrogate.nearness(self._asked())

    def _untried_family(self) -> int | None:
        if self._families is None:
            return None
        tried = self._families[[*self._progress.times, *self._progress.pending]]
        strange = self._free & ~np.isin(self._families, tried)
        strange &= self._estimates <= self._estimates.min() + np.log(WITHIN)
        if not strange.any():
            return None
        return int(np.argmin(np.where(strange, self._estimates + self._ties, np.inf)))

    def _expected(self) -> Array:
        times = self._measured()
        if not times:
            return self._estimates
        return self._surrogate.believe(list(times), _logs(times), (), None).mean

    def _improving(self, times: dict[int, float], among: npt.NDArray[np.bool_]) -> int:
        """The point of `among` that is expected to improve most on the best."""
        points = self._candidates(times, among)
        pending = list(self._progress.pending)
        belief = self._surrogate.believe(list(times), _logs(times), pending, points)
        gain = _improvement(belief.mean, belief.deviation)
        worth = np.log(np.maximum(gain, 1e-300)) + np.log1p(-self._failing(points))
        return int(points[np.argmax(worth - self._ties[points])])

    def _candidates(self, times: dict[int, float], among: npt.NDArray[np.bool_]) -> Array:
        points = np.flatnonzero(among)
        if len(points) <= LOOKED_AT + FAR:
            return points
        mean = self._surrogate.believe(list(times), _logs(times), (), None).mean[points]
        nearness = self._surrogate.nearness(list(times))[points]
        best = np.argsort(mean + self._ties[points], kind="stable")[:LOOKED_AT]
        far = np.argsort(nearness + self._ties[points], kind="stable")[:FAR]
        found: Array = points[np.union1d(best, far)]
        return found

    def _failing(self, points: Array) -> Array:
        """How likely a point fails: the share of failures near it, and one success far away."""
        failed = [i for i, t in self._progress.times.items() if t is None]
        if not failed:
            return np.zeros(len(points))
        passed = self._measured()
        near = self._surrogate.near_sum
        bad, good = near(failed)[points], near(list(passed))[points]
        found: Array = 0.98 * bad / (bad + good + 0.3)
        return found


def _log_estimates(inputs: SpaceInputs) -> Array:
    """Points that nothing is known of stand in the middle of the others."""
    known = [
        np.nan if e is None else e for e in inputs.estimates_us or [None] * len(inputs.configs)
    ]
    logs = np.log(np.array(known, dtype=float))
    middle = float(np.nanmedian(logs)) if np.isfinite(logs).any() else 0.0
    found: Array = np.nan_to_num(logs, nan=middle)
    return found


def _logs(times: dict[int, float]) -> Array:
    found: Array = np.log(np.array(list(times.values()), dtype=float))
    return found


def _improvement(mean: Array, deviation: Array) -> Array:
    """E[max(-x, 0)] of normal x, the distribution function by its usual tanh approximation."""
    z = -mean / deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    below = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    found: Array = np.maximum(deviation * (z * below + density), 0.0)
    return found
