"""Search over the spaces of all implementations of a workload together, by a strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_compass.optimizer.left_out import LeftOut, left_out
from kernel_compass.optimizer.proposers.predicting import (
    candidate_of,
    prediction_of,
)
from kernel_compass.optimizer.search.space_inputs import SpaceInputs
from kernel_compass.optimizer.search.strategies import make_strategy
from kernel_compass.records.contracts import Config
from kernel_compass.records.loop import Baseline
from kernel_compass.records.loop_contracts import Strategy
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.study import Tell
from kernel_compass.records.trial import Action, Candidate, Proposal, Trial

_Place = tuple[int, int]
"""Which space, and which of its configurations."""


class Search:
    """One strategy a workload; it is told of whatever was tried, whoever proposed it.

    What is left out by then (`left_out`) leaves the space: the strategy is made anew over the rest
    and told again.

    Args:
        spaces: by workload, without those that cannot pay.
        baselines: measured.
        baseline_bytes: of the baseline's weight.
        strategy: its name.
        seed: of its ties and draws.
        count: how many it is asked for at a time.
    """

    name = "search"

    def __init__(
        self,
        spaces: Mapping[str, Sequence[CandidateSpace]],
        baselines: Mapping[str, Baseline],
        baseline_bytes: Mapping[str, int],
        strategy: str,
        seed: int,
        count: int = 1,
    ) -> None:
        self._spaces, self._baselines, self._bytes = spaces, baselines, baseline_bytes
        self._strategy, self._seed, self._count = strategy, seed, count
        self._states: dict[str, _State] = {}

    def propose(
        self,
        problem: ProblemDescription,
        workload: ProblemWorkload,
        regimes: Sequence[Regime],
        tried: Sequence[Trial],
    ) -> Sequence[Proposal]:
        """See `Proposer`; nothing while what it proposed last still waits."""
        del problem
        spaces = self._spaces.get(workload.name, ())
        gone = left_out(tried)
        state = self._states.get(workload.name)
        if state is None or state.without != gone:
            kept = [one for one in spaces if not gone.has(candidate_of(one, 0))]
            state = _State(kept, gone, self._strategy, self._seed, regimes)
            self._states[workload.name] = state
        state.learn(tried, self._baselines[workload.name])
        if state.waiting:
            return ()
        return [
            self._proposal(workload.name, state.spaces[s], i, regimes)
            for s, i in state.ask(self._count)
        ]

    def tell_of(self, workload: ProblemWorkload, trial: Trial) -> Tell | None:
        """What the strategy will be told of a trial, for the ledger; `None` = it is none of its."""
        state = self._states.get(workload.name)
        index = state.index_of(trial.proposal.candidate) if state else None
        if index is None:
            return None
        stream = f"{self._strategy} {workload.name}"
        return Tell(stream, index, score_us(trial, self._baselines[workload.name]))

    def _proposal(
        self, name: str, space: CandidateSpace, index: int, regimes: Sequence[Regime]
    ) -> Proposal:
        prediction = prediction_of(space, index, regimes, self._bytes.get(name))
        words = ", ".join(f"{k} {v}" for k, v in sorted(space.configs[index].items()) if v != "")
        return Proposal(
            candidate_of(space, index),
            Action.CONFIG,
            f"the strategy `{self._strategy}` asks for this point of {space.family}"
            + (f": {words}" if words else ""),
            self.name,
            (f"one of {len(space.configs)} configurations",),
            prediction,
            space.cost_s,
        )


class _State:
    """A strategy over the union of some spaces, and what it was told."""

    def __init__(
        self,
        spaces: Sequence[CandidateSpace],
        without: LeftOut,
        strategy: str,
        seed: int,
        regimes: Sequence[Regime],
    ) -> None:
        self.spaces, self.without = tuple(spaces), without
        self._places: list[_Place] = [
            (s, i) for s, space in enumerate(spaces) for i in range(len(space.configs))
        ]
        self._index = {
            candidate_of(spaces[s], i).key: n
            for n, (s, i) in reversed(list(enumerate(self._places)))
        }
        self._made = _made(spaces, self._places, strategy, seed, regimes)
        self._told = 0
        self.waiting: set[int] = set()
        """Asked, and not told yet."""

    def index_of(self, candidate: Candidate) -> int | None:
        """Its index in the union."""
        return self._index.get(candidate.key)

    def learn(self, tried: Sequence[Trial], baseline: Baseline) -> None:
        """Tell of all that is new."""
        for trial in tried[self._told :]:
            index = self.index_of(trial.proposal.candidate)
            if index is not None:
                self.waiting.discard(index)
                self._made.tell(index, score_us(trial, baseline))
        self._told = len(tried)

    def ask(self, count: int) -> list[_Place]:
        """The next points."""
        found = list(self._made.ask(count)) if self._places else []
        self.waiting |= set(found)
        return [self._places[index] for index in found]


def score_us(trial: Trial, baseline: Baseline) -> float | None:
    """A trial as one time: the geometric mean over its regimes, free of the baseline's drift."""
    if not trial.results:
        return None
    product = 1.0
    for one in trial.results:
        product *= baseline.time_us(one.regime) / one.speedup.estimate
    return float(product ** (1 / len(trial.results)))


def _made(
    spaces: Sequence[CandidateSpace],
    places: Sequence[_Place],
    strategy: str,
    seed: int,
    regimes: Sequence[Regime],
) -> Strategy:
    # Two formats have configurations that are equal: what they are of is part of the point, and
    # what is learned of a configuration in one of them counts in the other.
    configs: list[Config] = [
        {
            "implementation": spaces[s].implementation,
            "format": spaces[s].format or "",
            **spaces[s].configs[i],
        }
        for s, i in places
    ]
    estimates = [_estimate(spaces[s], i, regimes) for s, i in places]
    features = [spaces[s].features[i] if spaces[s].features else None for s, i in places]
    groups = [f"{spaces[s].family} {spaces[s].configs[i].get('kernel', '')}" for s, i in places]
    return make_strategy(
        strategy,
        SpaceInputs(configs, estimates),
        seed,
        groups=groups if len(set(groups)) > 1 else (),
        features=features if any(features) else (),
    )


def _estimate(space: CandidateSpace, index: int, regimes: Sequence[Regime]) -> float | None:
    """The geometric mean over the regimes; `None` where one is not known."""
    product = 1.0
    for regime in regimes:
        known = space.estimates_us.get(regime)
        value = known[index] if known else None
        if value is None:
            return None
        product *= value
    return float(product ** (1 / len(regimes)))
