"""What was measured, spread over the space: a Gaussian process on the logarithm of time.

The estimate is its mean function, so what is learned is where the estimate is wrong. Configurations
that agree in a dimension share its error (`additive`), in two of them that of the pair (`pairs`),
and near ones share what is left (`near`), as do those that compile alike (`alike`); a `slope` on
the estimate unlearns one that orders nothing. One measurement of a family thereby corrects it all.
How much each part counts is chosen among `MIXES` by the likelihood of what was measured (Rasmussen
and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.30); the scale by its posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernel_compass.optimizer.search.dimensions import Array, Dimensions

LEARNED = 160
"""Measurements that are learned from; what comes later is no news, and costs time."""
LENGTH = 4.0
"""Factors of two over which ordered dimensions resemble each other."""
SPREAD = 0.35
"""What log(time / estimate) is expected to scatter by, and how many measurements that counts as."""
SPREAD_COUNT = 6.0
NOISE = 2e-3
"""Share of the variance that no two configurations share."""
CLIPPED = 0.25
"""log(time / best) beyond which slower is only slow: a spilling kernel says nothing of the fast,
whose estimates are wrong by a tenth at most."""
PARTS = ("level", "slope", "additive", "pairs", "near", "alike")
MIXES = np.array(
    [
        # level slope additive pairs near alike
        [4.0, 0.05, 0.40, 0.20, 0.30, 0.10],
        [4.0, 0.05, 0.15, 0.15, 0.60, 0.10],
        [4.0, 0.30, 0.20, 0.30, 0.30, 0.20],
        [4.0, 1.00, 0.30, 0.30, 0.30, 0.10],
        [4.0, 0.05, 0.10, 0.10, 0.10, 0.70],
    ]
)
_CHOSEN_AT = frozenset((12, 20, 30, 45, 70, 100, 140))
"""Counts of measurements after which the mix is chosen anew; fewer choose by chance."""


@dataclass(frozen=True)
class Belief:
    """Of some points: expected log time less the best one's, and its standard deviation."""

    mean: Array
    deviation: Array


class Surrogate:
    """Beliefs over all points of a space.

    Args:
        dimensions: of the space.
        log_estimates: `(N,)`, log of the estimated time; any constant where nothing is known.
        features: `(D, N)`, standardized; may be empty.
    """

    def __init__(self, dimensions: Dimensions, log_estimates: Array, features: Array) -> None:
        self._dimensions = dimensions
        self._estimates = log_estimates
        self._features = features
        spread = float(log_estimates.std()) if len(log_estimates) else 0.0
        centered = log_estimates - (np.median(log_estimates) if len(log_estimates) else 0.0)
        self._slope = np.clip(centered / spread, -2, 2) if spread > 0 else np.zeros_like(centered)
        self._rows: dict[int, npt.NDArray[np.float32]] = {}
        self._mixed: dict[int, npt.NDArray[np.float32]] = {}
        self._mix = MIXES[0]
        self._mix_of = 0

    def nearness(self, indices: Sequence[int]) -> Array:
        """`(N,)`: how near each point is to the nearest of these, 0 to 1."""
        if not indices:
            return np.zeros(len(self._estimates))
        near = PARTS.index("near")
        found: Array = np.max([self._row(i)[near] for i in indices], axis=0).astype(float)
        return found

    def near_sum(self, indices: Sequence[int]) -> Array:
        """`(N,)`: nearness to each of these, summed."""
        near = PARTS.index("near")
        rows = [self._row(i)[near] for i in indices]
        return np.sum(rows, axis=0).astype(float) if rows else np.zeros(len(self._estimates))

    def believe(
        self,
        known: Sequence[int],
        log_times: Array,
        pending: Sequence[int],
        points: Array | None,
    ) -> Belief:
        """What is to be expected of some points.

        Args:
            known: points that were measured, in order; the first `LEARNED` count.
            log_times: `(len(known),)`.
            pending: points being measured: certain, as nothing better is to be learned there.
            points: indices; `None` = all, and the mean alone (deviations are zero).
        """
        known, log_times = self._learned(known, log_times)
        best = float(log_times.min())
        self._choose(known, log_times)
        residuals = self._residuals(known, log_times)
        inverse = np.linalg.inv(self._mixed_among(known))
        weights = inverse @ (residuals - residuals.mean())
        level = residuals.mean() - best
        if points is None:
            mean = self._estimates + level + self._weighted(known, weights)
            return Belief(mean, np.zeros_like(mean))
        cross = self._cross(known, points)
        mean = self._estimates[points] + level + cross.T @ weights
        quadratic = float((residuals - residuals.mean()) @ weights)
        scale = (SPREAD_COUNT * SPREAD**2 + quadratic) / (SPREAD_COUNT + len(known))
        everything = [*known, *pending]
        if pending:
            inverse = np.linalg.inv(self._mixed_among(everything))
            cross = self._cross(everything, points)
        own = self._mix.sum() - self._mix[1] + self._mix[1] * self._slope[points] ** 2
        variance = own + NOISE - (cross * (inverse @ cross)).sum(axis=0)
        return Belief(mean, np.sqrt(np.maximum(variance, 1e-9) * scale))

    def _learned(self, known: Sequence[int], log_times: Array) -> tuple[list[int], Array]:
        """The first, and of those the best there is in any case."""
        if len(known) <= LEARNED:
            return list(known), log_times
        best = int(np.argmin(log_times))
        kept = [*range(LEARNED - 1), max(best, LEARNED - 1)]
        return [known[i] for i in kept], log_times[kept]

    def _residuals(self, known: Sequence[int], log_times: Array) -> Array:
        clipped = np.minimum(log_times, log_times.min() + CLIPPED)
        found: Array = clipped - self._estimates[list(known)]
        return found

    def _choose(self, known: Sequence[int], log_times: Array) -> None:
        """The likeliest mix, now and then; of so many first ones, so that a replay does it too."""
        due = max((n for n in _CHOSEN_AT if n <= len(known)), default=0)
        if due == self._mix_of:
            return
        self._mix_of = due
        residuals = self._residuals(known[:due], log_times[:due])
        centered = residuals - residuals.mean()
        scores = [self._evidence(self._among(known[:due], mix), centered) for mix in MIXES]
        self._mix = MIXES[int(np.argmax(scores))]
        self._mixed.clear()

    @staticmethod
    def _evidence(covariance: Array, residuals: Array) -> float:
        """Log likelihood, the scale integrated out under its inverse-gamma prior."""
        _, log_determinant = np.linalg.slogdet(covariance)
        quadratic = float(residuals @ np.linalg.solve(covariance, residuals))
        count = SPREAD_COUNT + len(residuals)
        log_scale = float(np.log(SPREAD_COUNT * SPREAD**2 + quadratic))
        return -0.5 * float(log_determinant) - 0.5 * count * log_scale

    def _among(self, points: Sequence[int], mix: Array) -> Array:
        """Covariance of points, noise included."""
        rows = np.array([self._row(i)[:, list(points)] for i in points], dtype=float)
        found: Array = np.tensordot(rows, mix, axes=([1], [0]))
        found += NOISE * np.eye(len(points))
        return found

    def _mixed_among(self, points: Sequence[int]) -> Array:
        """As `_among` with the mix of now."""
        return self._cross(points, np.array(points)) + NOISE * np.eye(len(points))

    def _cross(self, points: Sequence[int], others: Array) -> Array:
        """Covariance of points with others."""
        return np.array([self._mixed_row(i)[others] for i in points], dtype=float)

    def _weighted(self, points: Sequence[int], weights: Array) -> Array:
        """Covariance of points with all, weighted and added up: without a table of them."""
        total = np.zeros(len(self._estimates), dtype=np.float32)
        for index, weight in zip(points, weights, strict=True):
            total += np.float32(weight) * self._mixed_row(index)
        return total.astype(float)

    def _mixed_row(self, index: int) -> npt.NDArray[np.float32]:
        if index not in self._mixed:
            mixed: npt.NDArray[np.float32] = self._mix.astype(np.float32) @ self._row(index)
            self._mixed[index] = mixed
        return self._mixed[index]

    def _row(self, index: int) -> npt.NDArray[np.float32]:
        """`(parts, N)`: covariance of a point with all, by part."""
        if index not in self._rows:
            self._rows[index] = self._parts(index).astype(np.float32)
        return self._rows[index]

    def _parts(self, index: int) -> Array:
        count = len(self._estimates)
        single = np.exp(-self._dimensions.distances(index) / LENGTH)
        dims = max(len(single), 1)
        total = single.sum(axis=0) if len(single) else np.ones(count)
        pairs = np.ones(count)
        if dims > 1:
            pairs = (total**2 - (single**2).sum(axis=0)) / (dims * (dims - 1))
        alike = np.ones(count)
        if len(self._features):
            apart = ((self._features - self._features[:, index : index + 1]) ** 2).mean(axis=0)
            alike = np.exp(-0.5 * apart / 0.5**2)
        slope = self._slope * self._slope[index]
        near = single.prod(axis=0) if len(single) else np.ones(count)
        return np.stack([np.ones(count), slope, total / dims, pairs, near, alike])
