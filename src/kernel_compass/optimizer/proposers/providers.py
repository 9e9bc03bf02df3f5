"""Every implementation that can compute the workload, in its default configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_compass.optimizer.proposers.predicting import (
    bytes_evidence,
    candidate_of,
    floor_evidence,
    prediction_of,
)
from kernel_compass.records.loop import Baseline
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Action, Proposal, Trial

SIXTEEN_BITS = ("bf16", "fp16", None)


class Providers:
    """Proposes all defaults at once, and nothing after that."""

    name = "providers"

    def __init__(
        self,
        spaces: Mapping[str, Sequence[CandidateSpace]],
        baselines: Mapping[str, Baseline],
        baseline_bytes: Mapping[str, int],
    ) -> None:
        self._spaces, self._baselines, self._bytes = spaces, baselines, baseline_bytes
        self._proposed: set[str] = set()

    def propose(
        self,
        problem: ProblemDescription,
        workload: ProblemWorkload,
        regimes: Sequence[Regime],
        tried: Sequence[Trial],
    ) -> Sequence[Proposal]:
        """See `Proposer`."""
        del problem, tried
        if workload.name in self._proposed:
            return ()
        self._proposed.add(workload.name)
        spaces = self._spaces.get(workload.name, ())
        return [self._proposal(workload.name, space, regimes) for space in spaces]

    def _proposal(self, name: str, space: CandidateSpace, regimes: Sequence[Regime]) -> Proposal:
        other = space.format not in SIXTEEN_BITS
        weight = self._bytes.get(name)
        why = f"{space.implementation} of {space.source or 'the file'} can compute it"
        return Proposal(
            candidate_of(space, 0),
            Action.PRECISION if other else Action.IMPLEMENTATION,
            f"{why} in {space.format}" if space.format else why,
            self.name,
            (*bytes_evidence(space, weight), *floor_evidence(space, self._baselines[name])),
            prediction_of(space, 0, regimes, weight),
            space.cost_s,
        )
