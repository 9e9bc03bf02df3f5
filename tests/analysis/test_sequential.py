"""The sequential comparison: its error rates by simulation, and its manners."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from comparison_power import Z99, compare, naive_peeking, part
from noise_models import MADE_UP, MadeUpNoise, Noise, RecordedNoise, known, samples

from kernel_compass.analysis.pairing import log_ratios
from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.errors import UsageError
from kernel_compass.records.comparison import Decision, Rule, Stage
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

DIFFERENT = (Decision.FASTER, Decision.SLOWER)


def decisions(
    noise: Noise, effect: float, runs: int, rule: Rule | None = None
) -> Counter[Decision]:
    rng = np.random.default_rng(20)
    return Counter(compare(noise, rule or Rule(), effect, rng).decision for _ in range(runs))


def run(pairs: PairedSamples, rule: Rule) -> SequentialComparison:
    comparison, done = SequentialComparison(rule), 0
    while comparison.pairs_wanted:
        step = comparison.pairs_wanted
        comparison.add(part(pairs, done, done + step))
        done += step
    return comparison


def constant(ratio: float, count: int) -> PairedSamples:
    return samples(np.array([[10.0 * ratio] * count, [10.0] * count]))


@pytest.mark.parametrize("name", list(known()))
def test_a_kernel_compared_with_itself(name: str) -> None:
    """At most 1 in 100 of 200 comparisons may find a difference of 2 %."""
    found = decisions(known()[name], 1.0, 200)
    assert sum(found[d] for d in DIFFERENT) <= 2
    assert found[Decision.EQUIVALENT] >= 190


@pytest.mark.parametrize("name", [n for n in known() if n in ("quiet", "usual", "recorded")])
@pytest.mark.parametrize(("effect", "expected"), [(1.03, "faster"), (1 / 1.03, "slower")])
def test_three_percent_is_found(name: str, effect: float, expected: str) -> None:
    found = decisions(known()[name], effect, 200)
    assert found[Decision(expected)] >= 190
    assert all(d in (expected, Decision.UNDECIDED) for d in found)


def test_three_percent_in_the_roughest_noise() -> None:
    """3.5 % a pair, correlated, every twentieth pair disturbed."""
    rough = dataclasses.replace(MADE_UP["rough"], placement_pct=0.0)
    assert decisions(rough, 1.03, 200)[Decision.FASTER] >= 190


def test_noise_so_large_that_the_minimum_effect_vanishes_in_it() -> None:
    """The guarantee that holds whatever the noise: alpha, here with 25 % a pair."""
    found = decisions(MadeUpNoise(25.0), 1.0, 500)
    assert sum(found[d] for d in DIFFERENT) <= 11  # 1 % of 500, and 3 sigma
    assert found[Decision.UNDECIDED] > 450


def test_looking_again_inflates_a_naive_rule_and_not_ours() -> None:
    """The true effect is exactly the minimum: every `faster` is wrong, at most 0.5 % of them."""
    noise = dataclasses.replace(MADE_UP["usual"], placement_pct=0.0)
    rule, threshold = Rule(), np.log(1.02)
    rng, naive, ours = np.random.default_rng(9), Counter[str](), 0
    for _ in range(500):
        pairs = noise.process(rng, 800, 1.02)
        logs = log_ratios(pairs)
        naive["looks"] += naive_peeking(logs, rule.looks, Z99, threshold)
        naive["often"] += naive_peeking(logs, range(20, 801, 10), Z99, threshold)
        ours += run(pairs, rule).decision is Decision.FASTER
    assert naive["often"] > naive["looks"] > 0.02 * 500  # five times what 99 % promises
    assert naive["often"] > 0.05 * 500
    assert ours <= 7  # 0.5 % of 500, and 3 sigma


def test_many_candidates_share_the_error_rate() -> None:
    """Ten copies of a candidate at the minimum effect: any wrong winner, as rarely as of one."""
    noise = dataclasses.replace(MADE_UP["quiet"], placement_pct=0.0)
    rule, rng = Rule(alpha=0.1, candidates=10), np.random.default_rng(13)
    wrong = sum(
        any(compare(noise, rule, 1.02, rng).decision is Decision.FASTER for _ in range(10))
        for _ in range(60)
    )
    assert wrong <= 8  # 5 % of 60, and 3 sigma
    lone = run(noise.process(np.random.default_rng(1), 800, 1.02), Rule(alpha=0.1)).result()
    many = run(noise.process(np.random.default_rng(1), 800, 1.02), rule).result()
    assert many.speedup.low < lone.speedup.low
    assert many.speedup.confidence == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.10, Decision.FASTER),
        (1.0201, Decision.FASTER),
        (1.0, Decision.EQUIVALENT),
        (1.0199, Decision.EQUIVALENT),
        (1 / 1.0199, Decision.EQUIVALENT),
        (1 / 1.0201, Decision.SLOWER),
        (0.5, Decision.SLOWER),
    ],
)
def test_limits_without_noise(ratio: float, expected: Decision) -> None:
    comparison = SequentialComparison(Rule())
    assert comparison.add(constant(ratio, 50)) is expected
    assert comparison.pairs_wanted == 0
    assert comparison.result().pairs == 50


def test_the_result_says_what_it_rests_on() -> None:
    pairs = MadeUpNoise(1.2, 0.9, 0.5).process(np.random.default_rng(3), 800, 1.02)
    result = run(pairs, Rule()).result()
    assert result.decision is Decision.UNDECIDED
    assert (result.pairs, result.looks, result.processes) == (800, 5, 1)
    assert result.alpha_spent == pytest.approx(0.01)
    assert result.stage is Stage.IN_PROCESS
    assert (result.regime, result.launch_mode) == (Regime.WARM, LaunchMode.GRAPH)
    assert result.speedup.low < 1.02 < result.speedup.high
    assert "neither shown nor excluded, though it is faster" in result.reasons[0]
    assert 1.0 < result.pair_noise_pct < 4.0
    assert result.reproducible is None and result.p_value is None
    assert "placement in memory" in result.reasons[-1]


def test_an_early_stop_has_spent_less() -> None:
    result = run(constant(1.5, 800), Rule()).result()
    assert result.looks == 1
    assert result.alpha_spent == pytest.approx(0.01 / 16**1.5)


def test_the_noise_floor_widens_the_report_and_decides_nothing() -> None:
    pairs = MADE_UP["quiet"].process(np.random.default_rng(5), 800, 1.04)
    bare, floored = run(pairs, Rule()), run(pairs, Rule(noise_floor_pct=1.0))
    assert floored.decision is bare.decision is Decision.FASTER
    assert floored.result().speedup == bare.result().speedup
    wide = floored.result().reproducible
    assert wide is not None
    half = np.log(wide.high / wide.low) / 2
    inner = np.log(bare.result().speedup.high / bare.result().speedup.low) / 2
    assert half == pytest.approx(np.hypot(inner, 2.5758 * 0.01), rel=1e-4)


def test_the_same_pairs_give_the_same_answer() -> None:
    pairs = MADE_UP["rough"].process(np.random.default_rng(2), 800, 1.025)
    assert run(pairs, Rule()).result() == run(pairs, Rule()).result()


def test_pairs_in_any_portions() -> None:
    """Looks happen where they are due, not at every call; overshooting takes what is there."""
    pairs = MADE_UP["rough"].process(np.random.default_rng(2), 800, 1.02)
    comparison = SequentialComparison(Rule())
    for first in range(0, 49, 7):
        assert comparison.add(part(pairs, first, first + 7)) is Decision.CONTINUE
        assert comparison.pairs_wanted == (50 if first == 42 else 50 - first - 7) - (
            0 if first < 42 else 49
        )
    with pytest.raises(UsageError, match="49 pairs, and the first look is at 50"):
        comparison.result()
    comparison.add(part(pairs, 49, 230))
    assert (comparison.result().pairs, comparison.result().looks) == (230, 1)
    assert comparison.pairs_wanted == 170
    comparison.add(part(pairs, 230, 800))
    assert comparison.result().looks == 2
    assert comparison.decision is not Decision.CONTINUE


def test_stopping_early_is_undecided() -> None:
    pairs = MADE_UP["rough"].process(np.random.default_rng(2), 800, 1.02)
    comparison = SequentialComparison(Rule())
    comparison.add(part(pairs, 0, 50))
    assert comparison.result().decision is Decision.CONTINUE
    stopped = comparison.stop()
    assert stopped.decision is comparison.decision is Decision.UNDECIDED
    assert "stopped after 50 of 800 pairs" in stopped.reasons
    with pytest.raises(UsageError, match="has ended"):
        comparison.add(part(pairs, 50, 100))


def test_stopping_leaves_a_decision_alone() -> None:
    comparison = SequentialComparison(Rule())
    comparison.add(constant(1.5, 50))
    assert comparison.stop().decision is Decision.FASTER


def test_nothing_is_added_after_the_answer() -> None:
    comparison = SequentialComparison(Rule())
    comparison.add(constant(1.5, 50))
    with pytest.raises(UsageError, match="has ended: faster"):
        comparison.add(constant(1.0, 50))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"regime": Regime.COLD}, "regime warm and pairs with cold"),
        ({"launch_mode": LaunchMode.EAGER}, "launch_mode"),
        ({"launches_per_replay": 21}, "launches_per_replay 20 and pairs with 21"),
        ({"process": 1}, "use confirm"),
    ],
)
def test_pairs_measured_differently_are_refused(change: dict[str, object], match: str) -> None:
    comparison = SequentialComparison(Rule())
    comparison.add(constant(1.0, 20))
    with pytest.raises(UsageError, match=match):
        comparison.add(dataclasses.replace(constant(1.0, 20), **change))
    assert comparison.pairs_wanted == 30  # refused pairs leave no trace


@pytest.mark.parametrize(
    "change",
    [
        {"minimum_effect": 0.0},
        {"minimum_effect": 2.0},
        {"alpha": float("nan")},
        {"alpha": 1e-300},
        {"hold_out_alpha": 1e-300},
        {"looks": (50.5,)},
        {"looks": (True, 50)},
        {"noninferiority_margin": -0.01},
        {"hold_out_alpha": 0.5},
        {"looks": ()},
        {"looks": (5, 50)},
        {"looks": (100, 50)},
        {"looks": (50, 50)},
        {"candidates": 0},
        {"hold_out_processes": 2},
        {"spending_power": 0.0},
        {"noise_floor_pct": -1.0},
        {"noise_floor_pct": float("nan")},
    ],
)
def test_a_rule_whose_error_rates_would_not_hold(change: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Rule(**change)


def test_recorded_noise_is_resampled_in_stretches(tmp_path: Path) -> None:
    """The schema of recorded A/A pairs, each process with its offset, and correlation kept."""
    rng = np.random.default_rng(1)
    correlated = MadeUpNoise(0.1, 1.0, 0.8, outliers=0.0, placement_pct=0.5)
    runs = [correlated.process(rng, 300, number=number) for number in range(6)]
    document = {
        "environment": {"device": "NVIDIA H200"},
        "kernel": "copy",
        "launches_per_replay": 33,
        "pairs": [
            {"baseline_us": r.baseline_us, "candidate_us": r.candidate_us, "process": r.process}
            for r in runs
        ],
    }
    file = tmp_path / "noise.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    noise = RecordedNoise(file)
    assert [s.baseline_us for s in noise.samples()] == [r.baseline_us for r in runs]
    drawn = noise.process(rng, 800, 1.03)
    logs = log_ratios(drawn)
    assert (drawn.launches_per_replay, logs.size) == (33, 800)
    assert np.corrcoef(logs[1:], logs[:-1])[0, 1] > 0.6
    centers = [np.median(log_ratios(noise.process(rng, 800))) for _ in range(40)]
    assert np.std(centers) > 0.002
    assert decisions(noise, 1.06, 20)[Decision.FASTER] == 20
