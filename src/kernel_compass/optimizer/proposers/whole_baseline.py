"""Rules about the baseline as a whole: its runs of small operators become one kernel each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_compass.analysis.whole_baseline import EFFICIENCY, fused_us
from kernel_compass.optimizer.proposers.findings import Findings
from kernel_compass.records.baseline_survey import COMPILED, BaselineSurvey
from kernel_compass.records.counters import L2_SECTORS_READ
from kernel_compass.records.loop import Baseline
from kernel_compass.records.problem import ProblemDescription, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import (
    Action,
    Candidate,
    CounterMovement,
    Prediction,
    Proposal,
    Trial,
)
from kernel_compass.units import bytes_text, duration_text

COST_S = 24.0
"""As `torch.compile` of one function of a step is taken to cost."""


class WholeBaseline:
    """Proposes a fusion of the baseline once, where it has a run of small operators.

    Args:
        baselines: measured.
        findings: with what the baselines consist of.
    """

    name = "rules"

    def __init__(self, baselines: Mapping[str, Baseline], findings: Findings) -> None:
        self._baselines, self._findings = baselines, findings
        self._proposed: set[str] = set()

    def propose(
        self,
        problem: ProblemDescription,
        workload: ProblemWorkload,
        regimes: Sequence[Regime],
        tried: Sequence[Trial],
    ) -> Sequence[Proposal]:
        """See `Proposer`."""
        del tried
        survey = self._findings.surveys.get(workload.name)
        if survey is None or survey.no_fusion is not None or workload.name in self._proposed:
            return ()
        self._proposed.add(workload.name)
        times = self._baselines[workload.name].times_us
        return [
            Proposal(
                Candidate(COMPILED, {"mode": "default"}, source=problem.name),
                Action.FUSION,
                f"{survey.launches} launches become {survey.fused_launches}: small operators "
                "write what the next one reads again",
                self.name,
                _evidence(survey),
                _prediction(survey, {r: times[r] for r in regimes if r in times}),
                COST_S,
            )
        ]


def _evidence(survey: BaselineSurvey) -> tuple[str, ...]:
    read = f"{bytes_text(survey.read_bytes)} are read, {bytes_text(survey.fused_read_bytes)} then"
    rows = [f"runs of two or more small operators: {survey.runs}", read]
    if survey.saved_us is not None:
        most = duration_text(survey.saved_us)
        rows.append(f"one kernel a run saves {most} at most, {EFFICIENCY:.0%} of it is expected")
    return (*rows, "needs: torch.compile takes its runs without a graph break; its shapes stay")


def _prediction(survey: BaselineSurvey, times_us: Mapping[Regime, float]) -> Prediction | None:
    times: dict[Regime, float] = {}
    if survey.saved_us is not None:
        times = {r: fused_us(t, survey.saved_us) for r, t in times_us.items()}
    counters: tuple[CounterMovement, ...] = ()
    if survey.products == 0 and survey.read_bytes:  # a product reads its operands more than once
        ratio = survey.fused_read_bytes / survey.read_bytes
        counters = (CounterMovement(L2_SECTORS_READ, ratio),)
    basis = "floors of its operators one by one and of one kernel a run"
    return Prediction(times, basis, counters) if times or counters else None
