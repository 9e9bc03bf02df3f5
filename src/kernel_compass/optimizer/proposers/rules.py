"""Rules: what limits the best candidate so far, and the named actions that help against that.

A rule names dimensions of a space and a direction. What it proposes is the nearest configuration
of the same space that differs in those alone. The limiter is a diagnosis, where there is one; else
it follows from the floor: near it, what bounds the floor, far from it, latency. A diagnosis is of
one candidate, and holds for its family: it is not made anew after every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_compass.optimizer.proposers.findings import Finding, Findings
from kernel_compass.optimizer.proposers.predicting import (
    candidate_of,
    floor_evidence,
    index_of,
    prediction_of,
)
from kernel_compass.optimizer.proposers.rule_table import RULES, Direction, Rule
from kernel_compass.records.contracts import Config
from kernel_compass.records.loop import Baseline
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Action, Candidate, Outcome, Proposal, Trial

NEAR_FLOOR = 1.3
"""Within this factor of its floor a kernel is limited by what bounds the floor."""
_LIMITERS = {
    "dram": "dram_bound",
    "l2": "l2_bound",
    "compute": "compute_bound",
    "launch": "launch_bound",
}


class Rules:
    """Proposes steps away from the best candidate so far, each once.

    Args:
        spaces: by workload.
        baselines: measured.
        baseline_bytes: of the baseline's weight.
        findings: diagnoses, as far as they are known when it is asked; without one of the family
            that it starts from the floor speaks.
    """

    name = "rules"

    def __init__(
        self,
        spaces: Mapping[str, Sequence[CandidateSpace]],
        baselines: Mapping[str, Baseline],
        baseline_bytes: Mapping[str, int],
        findings: Findings | None = None,
    ) -> None:
        self._spaces, self._baselines, self._bytes = spaces, baselines, baseline_bytes
        self._findings = findings or Findings()

    def propose(
        self,
        problem: ProblemDescription,
        workload: ProblemWorkload,
        regimes: Sequence[Regime],
        tried: Sequence[Trial],
    ) -> Sequence[Proposal]:
        """See `Proposer`."""
        del problem
        best = best_of(tried)
        if best is None:
            return ()
        spaces = self._spaces.get(workload.name, ())
        at = _where(spaces, best.proposal.candidate)
        if at is None:
            return ()
        space, index = at
        finding = self._finding(workload.name, space, best)
        found: list[Proposal] = []
        for rule in RULES:
            if not rule.applies(finding.limiter, finding.flags):
                continue
            for target, step in _steps(rule, spaces, space, index):
                found.append(
                    self._proposal(workload.name, rule, finding, target, step, best, regimes)
                )
        return found

    def _finding(self, name: str, space: CandidateSpace, best: Trial) -> Finding:
        known = self._findings.best.get(name)
        if known is not None and known.family in (None, space.family):
            return known
        farthest: tuple[float, str, str] | None = None
        for one in best.results:
            floor = space.floors_us.get(one.regime)
            if not floor:
                continue
            times = one.candidate_us / floor
            near = times <= NEAR_FLOOR
            limiter = _LIMITERS.get(space.bounds.get(one.regime, ""), "unclassified")
            limiter = limiter if near else "latency_bound"
            text = f"{one.regime.value}: {one.candidate_us:.2f} us, {times:.2f} times its floor"
            if farthest is None or times > farthest[0]:
                farthest = (times, limiter, text)
        if farthest is None:
            return Finding("unclassified", (), ("no floor is known here",))
        return Finding(farthest[1], (), (farthest[2],))

    def _proposal(
        self,
        name: str,
        rule: Rule,
        finding: Finding,
        space: CandidateSpace,
        index: int,
        best: Trial,
        regimes: Sequence[Regime],
    ) -> Proposal:
        changed = _changed(best.proposal.candidate, space, index)
        said = (*finding.evidence, f"so it counts as {finding.limiter}")
        baseline = self._findings.baseline.get(name)
        if baseline is not None:
            said = (*said, f"the baseline is {baseline.text}")
        if rule.action is Action.PRECISION:
            said = (*said, *floor_evidence(space, self._baselines[name]))
        return Proposal(
            candidate_of(space, index),
            rule.action,
            f"{rule.why} ({changed})",
            self.name,
            (*said, f"from trial {best.number}"),
            prediction_of(space, index, regimes, self._bytes.get(name)),
            space.cost_s,
        )


def best_of(tried: Sequence[Trial]) -> Trial | None:
    """The fastest that is right; where none is faster than the baseline, of the slower ones."""
    timed = [t for t in tried if t.results and t.outcome is not Outcome.FAILED]
    return max(timed, key=lambda t: (_least(t), -t.number), default=None)


def _least(trial: Trial) -> float:
    return min(one.speedup.estimate for one in trial.results)


def _where(
    spaces: Sequence[CandidateSpace], candidate: Candidate
) -> tuple[CandidateSpace, int] | None:
    for space in spaces:
        index = index_of(space, candidate)
        if index is not None:
            return space, index
    return None


def _steps(
    rule: Rule, spaces: Sequence[CandidateSpace], space: CandidateSpace, index: int
) -> list[tuple[CandidateSpace, int]]:
    """Where a rule leads: at most one step along each of its dimensions."""
    if rule.action is Action.PRECISION:
        return _fewer_bytes(spaces, space)
    if rule.action is Action.IMPLEMENTATION:
        others = [o for o in spaces if o.format == space.format and o is not space]
        return [(other, 0) for other in others]
    found = []
    for name in rule.dimensions:
        step = _nearest(space, index, name, rule.direction)
        if step is not None:
            found.append((space, step))
    return found


def _fewer_bytes(
    spaces: Sequence[CandidateSpace], space: CandidateSpace
) -> list[tuple[CandidateSpace, int]]:
    if space.weight_bytes is None:
        return []
    return [
        (one, 0)
        for one in spaces
        if one.weight_bytes is not None and one.weight_bytes < 0.9 * space.weight_bytes
    ]


def _nearest(space: CandidateSpace, index: int, name: str, direction: Direction) -> int | None:
    """The nearest configuration that differs in one dimension alone, in the rule's direction."""
    here = space.configs[index]
    if name not in here:
        return None
    rows = [
        (i, config[name])
        for i, config in enumerate(space.configs)
        if _only_differs(here, config, name) and _is_towards(here[name], config[name], direction)
    ]
    if not rows:
        return None
    return min(rows, key=lambda row: (_distance(here[name], row[1]), row[0]))[0]


def _only_differs(here: Config, other: Config, name: str) -> bool:
    if here.keys() != other.keys() or here[name] == other[name]:
        return False
    return all(here[key] == other[key] for key in here if key != name)


def _is_towards(now: object, then: object, direction: Direction) -> bool:
    if direction is Direction.OTHER or isinstance(now, str) or isinstance(then, str):
        return direction is Direction.OTHER
    assert isinstance(now, int | float)
    assert isinstance(then, int | float)
    return then > now if direction is Direction.MORE else then < now


def _distance(now: object, then: object) -> float:
    if isinstance(now, int | float) and isinstance(then, int | float):
        return abs(float(then) - float(now))
    return 1.0


def _changed(candidate: Candidate, space: CandidateSpace, index: int) -> str:
    """What differs, in words."""
    before, after = candidate.config, space.configs[index]
    if (candidate.implementation, candidate.format) != (space.implementation, space.format):
        return f"{candidate.implementation} {candidate.format or ''} -> {space.family}"
    names = sorted(name for name in after if before.get(name) != after[name])
    return ", ".join(f"{name} {before.get(name)} -> {after[name]}" for name in names)
