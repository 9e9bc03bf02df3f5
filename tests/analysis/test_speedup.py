"""Intervals of one process, and what many comparisons do to a p-value."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from noise_models import MADE_UP, MadeUpNoise, samples
from scipy import stats

from kernel_compass.analysis.location import trimmed_mean
from kernel_compass.analysis.pairing import log_ratios
from kernel_compass.analysis.statistics import holm, noninferior, speedup
from kernel_compass.errors import UsageError
from kernel_compass.records.measurement import PairedSamples


def swapped(pairs: PairedSamples) -> PairedSamples:
    return dataclasses.replace(
        pairs, baseline_us=pairs.candidate_us, candidate_us=pairs.baseline_us
    )


def coverage(noise: MadeUpNoise, pairs: int, confidence: float, runs: int = 600) -> float:
    rng = np.random.default_rng(11)
    still = dataclasses.replace(noise, placement_pct=0.0)
    found = [speedup(still.process(rng, pairs, 1.07), confidence) for _ in range(runs)]
    return sum(interval.low < 1.07 < interval.high for interval in found) / runs


def test_location_is_scipys_trimmed_mean() -> None:
    for size in (12, 50, 801):
        values = np.random.default_rng(size).standard_cauchy(size)
        assert trimmed_mean(values) == pytest.approx(stats.trim_mean(values, 0.2))


@pytest.mark.parametrize("name", ["usual", "rough"])
@pytest.mark.parametrize("pairs", [20, 50, 200])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_intervals_hold_the_truth_as_often_as_they_say(
    name: str, pairs: int, confidence: float
) -> None:
    """Serially correlated, heavy-tailed, with outliers; 2 points are over 2 sigma of 600 runs."""
    assert coverage(MADE_UP[name], pairs, confidence) > confidence - 0.02


def test_correlation_is_what_makes_a_pair_bootstrap_too_narrow() -> None:
    from comparison_power import bootstrap

    correlated = MadeUpNoise(0.3, 1.5, 0.7, outliers=0.0)
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(200):
        low, high = bootstrap(log_ratios(correlated.process(rng, 100)), 1, rng, 300)
        inside.append(low < 0 < high)
    assert np.mean(inside) < 0.75
    assert coverage(correlated, 100, 0.95) > 0.93


def test_wander_longer_than_a_stretch_is_seen_in_long_runs_only() -> None:
    """The limit that the docs state."""
    assert coverage(MADE_UP["wandering"], 50, 0.95, runs=400) < 0.85
    assert coverage(MADE_UP["wandering"], 800, 0.95, runs=400) > 0.89


def test_narrow_enough_to_be_of_use() -> None:
    """Independent noise: at most half wider than the textbook interval of the mean."""
    noise = MadeUpNoise(1.0, outliers=0.0)
    rng = np.random.default_rng(2)
    widths, textbook = [], []
    for _ in range(200):
        pairs = noise.process(rng, 200)
        found, logs = speedup(pairs), log_ratios(pairs)
        widths.append(np.log(found.high / found.low))
        textbook.append(2 * 1.96 * logs.std(ddof=1) / np.sqrt(logs.size))
    assert np.median(widths) < 1.5 * np.median(textbook)


def test_swapping_the_sides_inverts_the_interval() -> None:
    pairs = MADE_UP["rough"].process(np.random.default_rng(4), 90, 1.1)
    there, back = speedup(pairs), speedup(swapped(pairs))
    assert (1 / back.estimate, 1 / back.high, 1 / back.low) == pytest.approx(
        (there.estimate, there.low, there.high)
    )


def test_a_tenth_of_disturbed_pairs_moves_nothing() -> None:
    rng = np.random.default_rng(8)
    times = 10 * np.exp(rng.normal(0, 0.005, (2, 100)))
    calm = speedup(samples(times))
    times[1, ::10] *= 20
    disturbed = speedup(samples(times))
    assert disturbed.estimate == pytest.approx(calm.estimate, abs=0.002)
    assert disturbed.low < 1 < disturbed.high


def test_noiseless_pairs_have_no_width() -> None:
    found = speedup(samples(np.array([[3.0] * 40, [2.0] * 40])))
    assert (found.low, found.estimate, found.high) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize("confidence", [0.0, 0.4, 1.0, 95.0, float("nan")])
def test_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(UsageError, match="Confidence"):
        speedup(samples(np.ones((2, 40))), confidence)


def test_noninferiority() -> None:
    rng, noise = np.random.default_rng(6), MadeUpNoise(1.0)
    assert noninferior(noise.process(rng, 400, 1.0), margin=0.01)
    assert noninferior(noise.process(rng, 400, 1.05), margin=0.01)
    assert not noninferior(noise.process(rng, 400, 0.97), margin=0.01)
    assert not noninferior(noise.process(rng, 20, 1.0), margin=0.005)  # not excluded is no pass
    with pytest.raises(UsageError, match="margin"):
        noninferior(noise.process(rng, 20), margin=0.0)


def test_noninferiority_errs_as_rarely_as_it_says() -> None:
    rng, noise = np.random.default_rng(7), MADE_UP["usual"]
    still = dataclasses.replace(noise, placement_pct=0.0)
    wrong = sum(noninferior(still.process(rng, 100, 1 / 1.01), margin=0.01) for _ in range(1000))
    assert wrong <= 40  # 2.5 % of 1000, and 3 sigma


def test_holm_against_a_worked_example() -> None:
    """Holm's step-down: 4 x 0.005, 3 x 0.01, 2 x 0.03, then never less than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([]) == ()
    assert holm([0.6, 0.7]) == (1.0, 1.0)


def test_holm_keeps_order_and_family_error() -> None:
    rng = np.random.default_rng(12)
    wrong = 0
    for _ in range(2000):
        p_values = rng.random(8)
        adjusted = np.array(holm(p_values.tolist()))
        assert np.all(np.diff(adjusted[np.argsort(p_values)]) >= 0)
        assert np.all(adjusted >= p_values)
        wrong += bool((adjusted <= 0.05).any())
    assert 60 <= wrong <= 130  # 5 % of 2000, and 3 sigma


@pytest.mark.parametrize("p_values", [[0.1, -0.1], [1.1], [float("nan")]])
def test_holm_refuses_what_is_no_p_value(p_values: list[float]) -> None:
    with pytest.raises(UsageError, match="no p-value"):
        holm(p_values)


def test_a_coarse_timer_moves_nothing() -> None:
    """Ticks of 0.5 % of the time: the median would jump by as much."""
    pairs = MADE_UP["usual"].process(np.random.default_rng(15), 400)
    times = np.array([pairs.baseline_us, pairs.candidate_us]) / 10 * 8
    fine, coarse = speedup(samples(times)), speedup(samples(np.round(times / 0.04) * 0.04))
    assert (coarse.estimate, coarse.low, coarse.high) == pytest.approx(
        (fine.estimate, fine.low, fine.high), abs=4e-4
    )
