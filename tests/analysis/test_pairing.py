"""Pairs from interleaved times, and everything that is no pair."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from noise_models import samples

from kernel_compass.analysis.pairing import log_ratios
from kernel_compass.analysis.statistics import speedup
from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

BLOCKS = 50


def drifting(order: str) -> np.ndarray:
    """One kernel timed in this order while its clock falls by 10 % in a straight line."""
    return 20.0 * np.linspace(1.0, 1.1, len(order))


def pairs(baseline: list[float], candidate: list[float]) -> PairedSamples:
    return PairedSamples(tuple(baseline), tuple(candidate), Regime.WARM, LaunchMode.GRAPH, 20)


def test_linear_drift_is_a_difference_in_sequence_and_none_in_abba_blocks() -> None:
    sequence = drifting("AA" * BLOCKS + "BB" * BLOCKS)
    one_after_the_other = samples(sequence.reshape(2, -1))
    assert speedup(one_after_the_other).estimate == pytest.approx(1.025 / 1.075, abs=2e-3)

    alternating = drifting("AB" * 2 * BLOCKS).reshape(-1, 2).T  # ABAB: A is always first
    assert np.all(log_ratios(samples(alternating)) < 0)

    blocks = drifting("ABBA" * BLOCKS).reshape(-1, 4)
    assert blocks[:, [1, 2]].mean(axis=1) == pytest.approx(blocks[:, [0, 3]].mean(axis=1))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -3.0])
@pytest.mark.parametrize("side", ["baseline_us", "candidate_us"])
def test_what_is_no_time_is_refused(bad: float, side: str) -> None:
    good = pairs([5.0] * 20, [5.0] * 20)
    with pytest.raises(MeasurementError, match="not a positive number") as caught:
        speedup(dataclasses.replace(good, **{side: (5.0,) * 18 + (bad,) * 2}))
    assert caught.value.cause is MeasurementCause.UNSTABLE
    assert caught.value.remedy


@pytest.mark.parametrize("bad", [0.0, -3.0])
def test_a_slope_or_two_lost_in_noise_cost_their_pairs_alone(bad: float) -> None:
    times = [5.0] * 98 + [bad] * 2
    assert log_ratios(pairs([5.0] * 100, times)).size == 98
    assert speedup(pairs([5.0] * 100, times)).estimate == pytest.approx(1.0)
    with pytest.raises(MeasurementError):
        log_ratios(pairs([5.0] * 100, [5.0] * 94 + [bad] * 6))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_number_at_all_is_never_tolerated(bad: float) -> None:
    with pytest.raises(MeasurementError):
        log_ratios(pairs([5.0] * 100, [5.0] * 99 + [bad]))


def test_extreme_times_do_not_overflow() -> None:
    found = speedup(pairs([1e300] * 20, [1e-300] * 20))
    assert found.estimate > 1e250
    assert speedup(pairs([1e-300] * 20, [1e300] * 20)).low >= 0.0


@pytest.mark.parametrize(
    ("baseline", "candidate", "match"),
    [
        ([5.0] * 20, [5.0] * 19, "20 baseline times and 19 candidate"),
        ([], [], "no pairs"),
        ([5.0], [5.0], "1 pairs cannot show"),
        ([5.0] * 11, [5.0] * 11, "11 pairs cannot show"),
    ],
)
def test_too_few_or_unequal(baseline: list[float], candidate: list[float], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        speedup(pairs(baseline, candidate))


def test_an_unknown_regime_is_refused() -> None:
    unknown = dataclasses.replace(pairs([5.0] * 20, [5.0] * 20), regime=Regime.UNKNOWN)
    with pytest.raises(UsageError, match="unknown regime"):
        speedup(unknown)
