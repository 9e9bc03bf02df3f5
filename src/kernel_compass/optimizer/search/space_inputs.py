"""What a strategy may know of a space before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from kernel_compass.errors import UsageError
from kernel_compass.records.contracts import Config


@dataclass(frozen=True)
class SpaceInputs:
    """The points of a space by index: `StrategyInputs`, and what is known of each beside.

    Raises:
        UsageError: a list of another length, or an estimate that is no positive number.
    """

    configs: Sequence[Config]
    estimates_us: Sequence[float | None] = ()
    """Empty = none is known."""
    features: Sequence[Mapping[str, float] | None] = ()
    """Of a static compilation: registers, occupancy, ...; empty = not compiled."""
    groups: Sequence[str] = ()
    """Families whose estimates may be wrong together, e.g. the implementation; empty = the values
    of the first dimension that has words."""

    def __post_init__(self) -> None:
        count = len(self.configs)
        for name in ("estimates_us", "features", "groups"):
            length = len(getattr(self, name))
            if length not in (0, count):
                raise UsageError(
                    f"{length} {name} were given for {count} configurations.",
                    "Give one of each, None where nothing is known, or none at all.",
                )
        check_estimates(self.estimates_us)
        for index, row in enumerate(self.features):
            wild = [name for name, value in (row or {}).items() if not isfinite(value)]
            if wild:
                raise UsageError(
                    f"Feature {wild[0]} of configuration {index} is {(row or {})[wild[0]]}.",
                    "Leave out what is not known.",
                )


def check_estimates(estimates_us: Sequence[float | None]) -> None:
    """Refuse estimates that order nothing.

    Raises:
        UsageError: one is no positive number.
    """
    for index, value in enumerate(estimates_us):
        if value is not None and not (isfinite(value) and value > 0):
            raise UsageError(
                f"The estimate of configuration {index} is {value}.",
                "Give a positive number of microseconds, or None.",
            )
