"""A space as numbers: how far two configurations are apart along each of its dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

import numpy as np
import numpy.typing as npt

from kernel_compass.records.contracts import Config

Array = npt.NDArray[Any]
OTHER = 2.0
"""Distance of two words; of two numbers it is the factors of two between them."""


class Dimensions:
    """The dimensions of a space that differ anywhere in it, ordered ones and words.

    Attributes:
        names: of the dimensions, in the order in which they first appear.
        coordinates: `(D, N)`; of an ordered dimension log2 of its value, of words their number.
        ordered: of each dimension, whether its distance is that of its coordinates.
    """

    def __init__(self, configs: Sequence[Config], groups: Sequence[str] = ()) -> None:
        every = list(dict.fromkeys(name for config in configs for name in config))
        columns = {name: [config.get(name) for config in configs] for name in every}
        if groups:
            columns[" group"] = list(groups)
        columns = {name: values for name, values in columns.items() if _differ(values)}
        self.names = tuple(columns)
        self.ordered = tuple(_is_ordered(values) for values in columns.values())
        rows = [_coordinates(v, o) for v, o in zip(columns.values(), self.ordered, strict=True)]
        self.coordinates: Array = np.array(rows, dtype=float).reshape(len(rows), len(configs))
        self._words = tuple(
            all(isinstance(value, str) for value in values) for values in columns.values()
        )

    def families(self, groups: Sequence[str]) -> Array | None:
        """The family of each point by number: its group, else its value of the first words."""
        if groups:
            return _numbered(groups)
        for d, words in enumerate(self._words):
            if words:
                found: Array = self.coordinates[d]
                return found
        return None

    def distances(self, index: int) -> Array:
        """`(D, N)`: from a point to all, along each dimension."""
        here = self.coordinates - self.coordinates[:, index : index + 1]
        apart: Array = np.abs(here)
        for d, ordered in enumerate(self.ordered):
            if not ordered:
                apart[d] = np.where(here[d] == 0, 0.0, OTHER)
        return apart

    def neighbours(self, index: int) -> npt.NDArray[np.bool_]:
        """Which points differ in one dimension alone, or by a factor of two in two ordered ones."""
        apart = self.distances(index)
        differing = (apart > 0).sum(axis=0)
        steps = (apart * np.array(self.ordered, dtype=float)[:, None] <= 1.0).all(axis=0)
        words = (apart[[not o for o in self.ordered]] > 0).any(axis=0)
        found: npt.NDArray[np.bool_] = (differing == 1) | ((differing == 2) & steps & ~words)
        return found


def feature_table(rows: Sequence[Mapping[str, float] | None]) -> Array:
    """`(D, N)`: features that differ, as log2(1 + value) where none is negative, standardized.

    A missing one is the mean: nothing is known from it.
    """
    names = sorted({name for row in rows for name in row or {}})
    table = [_standardized([(row or {}).get(name) for row in rows]) for name in names]
    kept = [row for row in table if row is not None]
    return np.array(kept, dtype=float).reshape(len(kept), len(rows))


def _standardized(values: Sequence[float | None]) -> Array | None:
    known = np.array([np.nan if value is None else value for value in values], dtype=float)
    if np.nanmin(known) >= 0:
        known = np.log2(1.0 + known)
    spread = float(np.nanstd(known))
    if not spread > 1e-9:
        return None
    found: Array = np.nan_to_num((known - np.nanmean(known)) / spread, nan=0.0)
    return found


def _differ(values: Sequence[object]) -> bool:
    return any(type(v) is not type(values[0]) or v != values[0] for v in values)


def _is_ordered(values: Sequence[object]) -> bool:
    """Whether all are numbers; a dimension that some configurations lack is none."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _coordinates(values: Sequence[object], ordered: bool) -> Array:
    if not ordered:
        return _numbered([repr(value) for value in values])
    numbers = [float(value) for value in values]  # type: ignore[arg-type]
    least = min(numbers)
    if least > 0:
        return np.array([log2(value) for value in numbers])
    return np.array([log2(1.0 + value - least) for value in numbers])


def _numbered(words: Sequence[str]) -> Array:
    numbers = {word: i for i, word in enumerate(dict.fromkeys(words))}
    return np.array([numbers[word] for word in words], dtype=float)
