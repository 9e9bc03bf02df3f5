"""The strategies by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_compass.errors import UsageError
from kernel_compass.optimizer.search.fixed_order import FixedOrder
from kernel_compass.optimizer.search.guided import Guided
from kernel_compass.optimizer.search.parzen import Parzen
from kernel_compass.optimizer.search.space_inputs import SpaceInputs
from kernel_compass.records.loop_contracts import Strategy, StrategyInputs

NAMES = ("model", "exhaustive", "random", "optuna")
"""The default first."""


def make_strategy(
    name: str,
    inputs: StrategyInputs,
    seed: int = 0,
    *,
    groups: Sequence[str] = (),
    features: Sequence[Mapping[str, float] | None] = (),
) -> Strategy:
    """A strategy over a space, before anything was asked.

    The same inputs, seed and tellings give the same questions: to resume, make it anew and tell it
    what was measured, in the order of then.

    Args:
        name: of `NAMES`.
        inputs: configurations and estimates.
        seed: decides ties and draws.
        groups: a family of each point, e.g. its implementation; empty = none.
        features: of a static compilation, of each point; empty = none.

    Raises:
        UsageError: there is no such strategy; a seed below 0; lists of different lengths, or an
            estimate that is no time.
        MissingDependency: its library is not installed.
    """
    if name not in NAMES:
        raise UsageError(f"There is no strategy {name!r}.", f"Take one of {', '.join(NAMES)}.")
    if seed < 0:
        raise UsageError(f"The seed is {seed}.", "Give 0 or more.")
    space = SpaceInputs(inputs.configs, inputs.estimates_us, features, groups)
    if name == "model":
        return Guided(space, seed)
    if name == "optuna":
        return Parzen(space, seed)
    return FixedOrder(name, space.configs, seed if name == "random" else None)
