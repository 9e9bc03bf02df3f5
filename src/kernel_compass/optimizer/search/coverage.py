"""Which points have values together that few asked points have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from kernel_compass.optimizer.search.dimensions import Array


class Coverage:
    """Pairs of values, of two dimensions each, and how often points that were asked have them.

    Args:
        coordinates: `(D, N)`, of `Dimensions`; one dimension is paired with itself.
    """

    def __init__(self, coordinates: Array) -> None:
        values = [np.unique(row, return_inverse=True)[1] for row in coordinates]
        count = len(values)
        pairs = list(combinations(range(count), 2)) or [(d, d) for d in range(count)]
        found = [values[a] * (values[b].max() + 1) + values[b] for a, b in pairs]
        self._codes: tuple[npt.NDArray[np.int64], ...] = tuple(
            np.unique(codes, return_inverse=True)[1] for codes in found
        )

    def strangeness(self, asked: Sequence[int]) -> Array | float:
        """`(N,)`: the mean over pairs of 1 / (1 + points of `asked` that have it), 0 to 1."""
        if not self._codes:
            return 0.0
        indices = list(asked)
        total = np.zeros(len(self._codes[0]))
        for codes in self._codes:
            seen = np.bincount(codes[indices], minlength=int(codes.max()) + 1)
            total += (1.0 / (1.0 + seen))[codes]
        found: Array = total / len(self._codes)
        return found
