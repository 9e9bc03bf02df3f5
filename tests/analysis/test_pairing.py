"""Pairs from interleaved times, and everything that is no pair."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from noise_models import samples

from kernel_compass.analysis.pairing import fold_abba, log_ratios, paired
from kernel_compass.analysis.statistics import speedup
from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Clocks, Environment
from kernel_compass.records.measurement import (
    ColdMethod,
    LaunchMode,
    Measurement,
    PairedSamples,
)
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

    baseline, candidate = fold_abba(drifting("ABBA" * BLOCKS).tolist())
    assert candidate == pytest.approx(baseline, rel=1e-12)


def test_folding_keeps_the_effect() -> None:
    times = drifting("ABBA" * BLOCKS).reshape(-1, 4) / np.array([1.0, 1.05, 1.05, 1.0])
    baseline, candidate = fold_abba(times.ravel().tolist())
    assert np.exp(log_ratios(pairs(list(baseline), list(candidate)))) == pytest.approx(1.05)


@pytest.mark.parametrize("count", [0, 1, 6])
def test_half_a_block_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="whole ABBA blocks"):
        fold_abba([1.0] * count)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -3.0])
@pytest.mark.parametrize("side", ["baseline_us", "candidate_us"])
def test_what_is_no_time_is_refused(bad: float, side: str) -> None:
    good = pairs([5.0] * 20, [5.0] * 20)
    with pytest.raises(MeasurementError, match="not positive numbers") as caught:
        speedup(dataclasses.replace(good, **{side: (5.0,) * 19 + (bad,)}))
    assert caught.value.cause is MeasurementCause.UNSTABLE
    assert caught.value.remedy


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


def measurement() -> Measurement:
    return Measurement(
        samples_us=(5.0,) * 20,
        regime=Regime.COLD,
        launch_mode=LaunchMode.GRAPH,
        launches_per_replay=40,
        operand_sets=64,
        streamed_bytes=1 << 24,
        clocks=Clocks(1980.0, 1980.0, 3201.0),
        environment=Environment(Device("NVIDIA H200", "9.0")),
        cold_method=ColdMethod.ROTATE,
    )


def test_measurements_become_pairs() -> None:
    other = dataclasses.replace(measurement(), samples_us=(4.0,) * 20, streamed_bytes=1 << 22)
    found = paired(measurement(), other, process=3)
    assert (found.regime, found.launches_per_replay, found.process) == (Regime.COLD, 40, 3)
    assert speedup(found).estimate == pytest.approx(1.25)


@pytest.mark.parametrize(
    "change",
    [
        {"regime": Regime.WARM},
        {"launch_mode": LaunchMode.EAGER},
        {"launches_per_replay": 20},
        {"cold_method": ColdMethod.FLUSH},
    ],
)
def test_sides_measured_differently_are_refused(change: dict[str, object]) -> None:
    (name,) = change
    with pytest.raises(UsageError, match=name):
        paired(measurement(), dataclasses.replace(measurement(), **change))


def test_two_devices_are_refused() -> None:
    elsewhere = Environment(Device("NVIDIA A100", "8.0"))
    with pytest.raises(UsageError, match="different devices"):
        paired(measurement(), dataclasses.replace(measurement(), environment=elsewhere))
