"""The hold-out over fresh processes, and the noise floor from A/A runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from comparison_power import cluster_bootstrap, fresh_processes, part
from noise_models import MADE_UP, MadeUpNoise, samples
from scipy import stats

from kernel_compass.analysis.hold_out import confirm, hold_out
from kernel_compass.analysis.location import trimmed_mean
from kernel_compass.analysis.noise import noise_floor
from kernel_compass.analysis.pairing import log_ratios
from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.analysis.statistics import adjust_for_candidates
from kernel_compass.errors import MeasurementError, UsageError
from kernel_compass.records.calibration import Basis
from kernel_compass.records.comparison import Decision, Rejection, Rule, Stage
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.profile import Regime

RULE = Rule()


def constant(ratios: Sequence[float], regime: Regime = Regime.WARM) -> list[PairedSamples]:
    """One noiseless process a ratio."""
    return [
        samples(np.array([[10.0 * ratio] * 20, [10.0] * 20]), number, regime)
        for number, ratio in enumerate(ratios)
    ]


def test_it_is_students_t_over_the_processes() -> None:
    runs = fresh_processes(MADE_UP["rough"], np.random.default_rng(1), 6, 1.05)
    result = hold_out(runs, RULE)
    centers = [trimmed_mean(log_ratios(run)) for run in runs]
    low, high = stats.t.interval(0.95, 5, np.mean(centers), stats.sem(centers))
    assert (result.speedup.low, result.speedup.high) == pytest.approx((np.exp(low), np.exp(high)))
    test = stats.ttest_1samp(centers, np.log(1.02), alternative="greater")
    assert result.p_value == pytest.approx(test.pvalue)
    assert (result.stage, result.processes, result.pairs) == (Stage.HOLD_OUT, 6, 1200)


def test_more_pairs_are_no_substitute_for_processes() -> None:
    """Pairs of one process share its placement: a thousand times as many leave the width."""
    placement = MadeUpNoise(0.2, outliers=0.0, placement_pct=1.0)
    rng = np.random.default_rng(4)
    ratios = [placement.process(rng, 2000, number=i) for i in range(5)]
    few = hold_out([part(run, 0, 20) for run in ratios], RULE).speedup
    many = hold_out(ratios, RULE).speedup
    assert np.log(many.high / many.low) == pytest.approx(np.log(few.high / few.low), rel=0.2)


def test_five_processes_hold_the_truth_as_often_as_they_say() -> None:
    rng, ours, narrower = np.random.default_rng(7), 0, []
    for _ in range(200):
        runs = [MADE_UP["usual"].process(rng, 40, 1.05, number) for number in range(5)]
        found = hold_out(runs, RULE).speedup
        ours += found.low < 1.05 < found.high
        low, high = cluster_bootstrap([log_ratios(run) for run in runs], rng, 40)
        narrower.append((high - low) / np.log(found.high / found.low))
    assert ours >= 0.95 * 200 - 9  # 3 sigma
    assert np.median(narrower) < 0.8  # the cluster bootstrap promises what it cannot know


@pytest.mark.parametrize("effect", [1.02, 1 / 1.02])
def test_at_exactly_the_minimum_effect(effect: float) -> None:
    rng, wrong = np.random.default_rng(8), 0
    for _ in range(300):
        runs = [MADE_UP["usual"].process(rng, 30, effect, number) for number in range(5)]
        wrong += hold_out(runs, RULE).decision in (Decision.FASTER, Decision.SLOWER)
    assert wrong <= 16  # 2.5 % of 300, and 3 sigma


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.05, 1.06, 1.05, 1.04, 1.05], Decision.FASTER),
        ([0.95, 0.94, 0.95, 0.96, 0.95], Decision.SLOWER),
        ([1.0, 1.001, 0.999, 1.0, 1.0], Decision.EQUIVALENT),
        ([1.05, 1.06, 1.05, 1.04, 0.9], Decision.UNDECIDED),
        ([1.05, 1.05, 1.05, 1.05, 1.05], Decision.FASTER),
    ],
)
def test_decisions(ratios: list[float], expected: Decision) -> None:
    result = hold_out(constant(ratios), RULE)
    assert result.decision is expected
    assert result.p_value is not None
    assert (result.p_value < 0.025) == (expected is Decision.FASTER)


def test_undecided_says_how_many_processes_would_decide() -> None:
    result = hold_out(constant([1.03, 1.05, 1.02, 1.04, 1.01]), RULE)
    assert result.decision is Decision.UNDECIDED
    (advice,) = [r for r in result.reasons if "hold-out of" in r]
    needed = int(advice.split("hold-out of ")[1].split()[0])
    again = [1.03, 1.05, 1.02, 1.04, 1.01] * 10
    assert hold_out(constant(again[:needed]), RULE).decision is Decision.FASTER
    hopeless = hold_out(constant([1.0, 1.04, 1.0201, 1.0, 1.04]), RULE)
    assert not any("hold-out of" in r for r in hopeless.reasons)


def test_runs_of_one_process_count_once() -> None:
    runs = fresh_processes(MADE_UP["quiet"], np.random.default_rng(3), 5, 1.05)
    halves = [part(r, *ends) for r in runs for ends in ((0, 100), (100, 200))]
    assert hold_out(halves, RULE) == hold_out(runs, RULE)
    with pytest.raises(UsageError, match="1 processes; a hold-out needs 5"):
        hold_out([dataclasses.replace(run, process=0) for run in runs], RULE)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_processes(count: int) -> None:
    with pytest.raises(UsageError):
        hold_out(constant([1.05] * count), RULE)


def test_bad_times_in_one_process() -> None:
    runs = constant([1.05] * 5)
    runs[3] = dataclasses.replace(runs[3], candidate_us=(float("nan"),) * 20)
    with pytest.raises(MeasurementError):
        hold_out(runs, RULE)
    runs[3] = dataclasses.replace(constant([1.05])[0], process=3, launches_per_replay=7)
    with pytest.raises(UsageError, match="launches_per_replay"):
        hold_out(runs, RULE)


FASTER, EQUAL, WORSE = [1.05, 1.06, 1.05, 1.04, 1.05], [1.0, 1.001, 0.999, 1.0, 1.0], [0.97] * 5


def test_confirm_wins_where_asked_and_loses_nowhere() -> None:
    warm_and_cold = constant(FASTER) + constant(EQUAL, Regime.COLD)
    verdict = confirm(warm_and_cold, RULE, [Regime.WARM])
    assert verdict.accepted and verdict.rejection is None
    assert {r.regime for r in verdict.results} == {Regime.WARM, Regime.COLD}
    assert any(reason.startswith("warm: 1.050x") for reason in verdict.reasons)

    all_asked = confirm(warm_and_cold, RULE)
    assert all_asked.rejection is Rejection.NOT_FASTER
    assert all_asked.reasons[0].startswith("cold: no difference of 2.0 % either way")


def test_confirm_refuses_a_gain_that_costs_another_regime() -> None:
    verdict = confirm(constant(FASTER) + constant(WORSE, Regime.COLD), RULE, [Regime.WARM])
    assert verdict.rejection is Rejection.INFERIOR_ELSEWHERE
    assert "a slowdown of 1.0 % is not excluded" in verdict.reasons[0]
    unclear = constant([0.96, 1.04, 1.0, 0.97, 1.03], Regime.COLD)
    assert not confirm(constant(FASTER) + unclear, RULE, [Regime.WARM]).accepted


def test_confirm_needs_what_was_asked_for() -> None:
    with pytest.raises(UsageError, match="in_situ"):
        confirm(constant(FASTER), RULE, [Regime.WARM, Regime.IN_SITU])
    with pytest.raises(UsageError, match="none asked"):
        confirm(constant(FASTER), RULE, [])
    with pytest.raises(UsageError, match="4 processes"):
        confirm(constant(FASTER) + constant(EQUAL[:4], Regime.COLD), RULE, [Regime.WARM])


def test_many_hold_outs_are_corrected() -> None:
    close = hold_out(constant([1.03, 1.05, 1.04, 1.03, 1.022]), RULE)
    clear = hold_out(constant(FASTER), RULE)
    assert close.decision is clear.decision is Decision.FASTER
    (alone,) = adjust_for_candidates([close], RULE)
    assert alone == close
    together = adjust_for_candidates([close, clear, *[close] * 4], RULE)
    assert [r.decision for r in together].count(Decision.FASTER) == 1
    assert together[1] == clear
    assert "by Holm" in together[0].reasons[0]


def test_a_comparison_in_process_cannot_be_corrected_afterwards() -> None:
    comparison = SequentialComparison(RULE)
    comparison.add(part(MADE_UP["quiet"].process(np.random.default_rng(0), 50, 1.1), 0, 50))
    with pytest.raises(UsageError, match="hold-out"):
        adjust_for_candidates([comparison.result()], RULE)


def test_noise_floor_finds_both_components() -> None:
    noise = MadeUpNoise(1.0, outliers=0.0, placement_pct=0.6)
    rng = np.random.default_rng(10)
    floor = noise_floor([noise.process(rng, 400, number=i) for i in range(40)])
    within, between = floor.within_process_pct, floor.between_processes_pct
    assert within.basis is between.basis is Basis.MEASURED
    assert within.value == pytest.approx(0.85, rel=0.15)  # t with 4 dof: trimming gains on 1.0
    assert between.value == pytest.approx(0.6, rel=0.35)
    assert "40 processes, 16000 pairs" in within.source


def test_noise_floor_intervals_hold_the_truth() -> None:
    noise = MadeUpNoise(1.0, outliers=0.0, placement_pct=0.6)
    rng, inside, values = np.random.default_rng(14), 0, []
    for _ in range(300):
        runs = [noise.process(rng, 100, number=i) for i in range(6)]
        between = noise_floor(runs).between_processes_pct
        assert between.low is not None and between.high is not None and between.value is not None
        inside += between.low < 0.6 < between.high
        values.append(between.value**2)
    assert inside >= 0.95 * 300 - 12  # 3 sigma
    assert np.mean(values) == pytest.approx(0.36, rel=0.15)


def test_no_noise_between_processes_is_zero_with_an_upper_limit() -> None:
    noise = MadeUpNoise(2.0, outliers=0.0)
    rng = np.random.default_rng(0)
    floors = [
        noise_floor([noise.process(rng, 50, number=i) for i in range(5)]).between_processes_pct
        for _ in range(20)
    ]
    assert any(f.value == 0.0 for f in floors)
    assert all(f.low == 0.0 or f.value > 0.0 for f in floors)
    assert sum(f.high is not None and f.high > 0 for f in floors) >= 18


def test_noise_floor_needs_processes() -> None:
    with pytest.raises(UsageError, match="2 processes"):
        noise_floor(constant([1.0, 1.0]))
    with pytest.raises(UsageError, match="regime"):
        noise_floor(constant([1.0] * 3) + constant([1.0] * 3, Regime.COLD))
