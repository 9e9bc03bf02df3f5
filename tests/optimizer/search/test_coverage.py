"""How strange points are, beside a count by hand."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from kernel_compass.optimizer.search.coverage import Coverage


def by_hand(coordinates, asked):
    found = []
    for n in range(coordinates.shape[1]):
        parts = []
        for a, b in combinations(range(len(coordinates)), 2):
            same = [
                i
                for i in asked
                if coordinates[a, i] == coordinates[a, n] and coordinates[b, i] == coordinates[b, n]
            ]
            parts.append(1 / (1 + len(same)))
        found.append(sum(parts) / len(parts))
    return np.array(found)


@pytest.mark.parametrize("asked", [[], [0], [0, 5, 5, 17], list(range(24))])
def test_pairs_are_counted(asked):
    points = np.array(list(product((0.0, 1.0), (1.0, 2.5, 4.0), (0.0, 3.0), (7.0, -1.0)))).T
    assert Coverage(points).strangeness(asked) == pytest.approx(by_hand(points, asked))


def test_a_point_of_new_values_is_the_strangest():
    points = np.array([[0.0, 0, 1, 1], [0, 1, 0, 1]])
    found = Coverage(points).strangeness([0])
    assert found[0] == pytest.approx(0.5)
    assert list(found[1:]) == [1.0, 1.0, 1.0]


def test_one_dimension_and_none():
    assert list(Coverage(np.array([[0.0, 1.0, 1.0]])).strangeness([1])) == [1.0, 0.5, 0.5]
    assert Coverage(np.zeros((0, 3))).strangeness([1]) == 0.0
