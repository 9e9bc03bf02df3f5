"""The strategy `optuna`: Optuna's tree-structured Parzen estimator, held to the points there are.

Optuna draws from the product of all dimensions, most of which cannot be built; what it draws is
moved to the nearest point that is free, and it is told of that one. Words are categorical, ordered
dimensions the ranks of their values. Optuna (MIT) is the extra `search`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from kernel_compass.errors import MissingDependency
from kernel_compass.optimizer.search.dimensions import Array, Dimensions
from kernel_compass.optimizer.search.progress import Progress
from kernel_compass.optimizer.search.space_inputs import SpaceInputs

INSTALL_OPTUNA = "pip install optuna"


class Parzen:
    """Asks as Optuna draws; see the module.

    Raises:
        MissingDependency: Optuna is not installed.
    """

    name = "optuna"

    def __init__(self, inputs: SpaceInputs, seed: int) -> None:
        self._optuna = _optuna()
        self._progress = Progress(inputs.configs)
        self._seed = seed
        space = Dimensions(inputs.configs, inputs.groups)
        self._coordinates = space.coordinates
        self._ordered = space.ordered
        self._ranks: Array = np.array([_ranked(row) for row in self._coordinates], dtype=int)
        self._ranks = self._ranks.reshape(len(space.names), len(inputs.configs))
        self._distributions = {
            name: self._distribution(int(row.max()) + 1, ordered)
            for name, row, ordered in zip(space.names, self._ranks, space.ordered, strict=True)
        }

    def ask(self, count: int) -> Sequence[int]:
        """See `Strategy`."""
        wanted = self._progress.wanted(count)
        return [self._progress.take(self._next()) for _ in range(wanted)]

    def tell(self, index: int, time_us: float | None) -> None:
        """See `Strategy`."""
        self._progress.tell(index, time_us)

    def _distribution(self, count: int, ordered: bool) -> Any:
        kinds = self._optuna.distributions
        if ordered:
            return kinds.IntDistribution(0, count - 1)
        return kinds.CategoricalDistribution(list(range(count)))

    def _next(self) -> int:
        """A study anew from what was told: so it is the same after a resumption."""
        sampler = self._optuna.samplers.TPESampler(
            seed=(self._seed * 1_000_003 + self._progress.asked) % (1 << 31)
        )
        study = self._optuna.create_study(sampler=sampler)
        study.add_trials([self._trial(i, t) for i, t in self._progress.times.items()])
        study.add_trials([self._waiting(i) for i in self._progress.pending])
        drawn = study.ask(self._distributions).params if self._distributions else {}
        return self._nearest([drawn[name] for name in self._distributions])

    def _trial(self, index: int, time_us: float | None) -> Any:
        states = self._optuna.trial.TrialState
        return self._optuna.trial.create_trial(
            state=states.FAIL if time_us is None else states.COMPLETE,
            value=time_us,
            params=self._parameters(index),
            distributions=self._distributions,
        )

    def _waiting(self, index: int) -> Any:
        return self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState.RUNNING,
            params=self._parameters(index),
            distributions=self._distributions,
        )

    def _parameters(self, index: int) -> dict[str, int]:
        return {n: int(row[index]) for n, row in zip(self._distributions, self._ranks, strict=True)}

    def _nearest(self, drawn: Sequence[int]) -> int:
        """The free point with the fewest and smallest differences."""
        free = np.array([i for i in self._progress.distinct if self._progress.is_free(i)])
        apart = np.zeros(len(free))
        for ranks, want, ordered in zip(self._ranks, drawn, self._ordered, strict=True):
            here = np.abs(ranks[free] - want)
            apart += np.minimum(here, 3) if ordered else 2 * (here > 0)
        return int(free[np.argmin(apart)])


def _ranked(row: Array) -> Array:
    found: Array = np.unique(row, return_inverse=True)[1]
    return found


def _optuna() -> Any:
    try:
        found = import_module("optuna")
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise MissingDependency(
            "The strategy optuna needs Optuna, which is not installed.",
            f"Install it with `{INSTALL_OPTUNA}`, or take --strategy model.",
        ) from error
    found.logging.set_verbosity(found.logging.WARNING)
    return found
