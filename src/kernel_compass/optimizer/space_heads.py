"""The order of a space by estimate, and parts of a space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernel_compass.records.search_space import CandidateSpace


def by_estimate(space: CandidateSpace) -> list[int]:
    """Indices, the most promising first: by the product of the regimes' estimates."""
    columns = [c for c in space.estimates_us.values() if None not in c]
    if not columns:
        return list(range(len(space.configs)))
    cost = [1.0] * len(space.configs)
    for column in columns:
        cost = [c * (t or 1.0) for c, t in zip(cost, column, strict=True)]
    return sorted(range(len(cost)), key=lambda i: (cost[i], i))


def head(space: CandidateSpace, count: int) -> list[int]:
    """The default and the most promising of the others, so many together."""
    return [0, *[i for i in by_estimate(space) if i != 0][: count - 1]] if count > 0 else []


def only(space: CandidateSpace, indices: Sequence[int]) -> CandidateSpace:
    """The space with these of its configurations alone."""
    return replace(
        space,
        configs=tuple(space.configs[i] for i in indices),
        estimates_us={r: tuple(c[i] for i in indices) for r, c in space.estimates_us.items()},
        features=tuple(space.features[i] for i in indices) if space.features else (),
    )
