"""The latency model: its limits, its bounds, what it refuses, and whether its band holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from analysis.latency_samples import MACHINE, bmm, by_hand_us, exactly, grid

from kernel_compass.analysis.kernel_terms import PRIOR, default_terms
from kernel_compass.analysis.latency import Bound, predict, predict_many
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision, Traffic
from kernel_compass.units import MIB

IDEAL = exactly(
    Precision.BF16, launches=1.0, l2_efficiency=1.0, dram_efficiency=1.0, math_efficiency=1.0
)


def streamed(weight_bytes: int) -> Traffic:
    return Traffic(weight_bytes, 0, 0, 2)


def time_us(moved: Traffic, regime: Regime = Regime.WARM) -> float:
    return predict(moved, IDEAL, regime, MACHINE).time_us


def test_a_launch_that_moves_nothing_takes_the_fixed_cost() -> None:
    found = predict(Traffic(0, 0, 0, 0), IDEAL, Regime.WARM, MACHINE)
    assert found.time_us == pytest.approx(2.0)
    assert found.bound is Bound.LAUNCH


def test_far_below_the_capacity_bytes_cost_what_l2_takes() -> None:
    more = time_us(streamed(16 * MIB)) - time_us(streamed(8 * MIB))
    assert more == pytest.approx(8 * MIB / 6e6, rel=1e-3)
    assert predict(streamed(16 * MIB), IDEAL, Regime.WARM, MACHINE).bound is Bound.L2


def test_far_beyond_the_capacity_bytes_cost_what_dram_takes() -> None:
    more = time_us(streamed(2048 * MIB)) - time_us(streamed(1024 * MIB))
    assert more == pytest.approx(1024 * MIB / 3e6, rel=1e-3)
    assert predict(streamed(1024 * MIB), IDEAL, Regime.WARM, MACHINE).bound is Bound.DRAM


def test_cold_weights_come_from_dram_at_every_size() -> None:
    more = time_us(streamed(16 * MIB), Regime.COLD) - time_us(streamed(8 * MIB), Regime.COLD)
    assert more == pytest.approx(8 * MIB / 3e6, rel=1e-6)


@pytest.mark.parametrize("precision", list(Precision))
def test_more_bytes_never_take_less_time_and_cold_is_never_faster(precision: Precision) -> None:
    sizes = [round(1.1**step * 1e5) for step in range(90)]
    terms = default_terms(precision)
    warm = [
        p.time_us for p in predict_many(list(map(streamed, sizes)), terms, Regime.WARM, MACHINE)
    ]
    cold = [
        p.time_us for p in predict_many(list(map(streamed, sizes)), terms, Regime.COLD, MACHINE)
    ]
    assert warm == sorted(warm)
    assert all(c >= w * (1 - 1e-12) for w, c in zip(warm, cold, strict=True))


def test_an_l2_path_slower_than_dram_bounds_what_dram_serves_too() -> None:
    slow = exactly(Precision.BF16, l2_efficiency=0.25, dram_efficiency=1.0, launches=1.0)
    moved = streamed(1024 * MIB)
    assert predict(moved, slow, Regime.WARM, MACHINE).time_us == pytest.approx(
        2.0 + 1024 * MIB / 1.5e6, rel=1e-3
    )


def test_many_tokens_are_bound_by_the_arithmetic() -> None:
    moved = Traffic(8 * MIB, 8 * MIB, 8 * MIB, 10**13, tokens=4096)
    found = predict(moved, IDEAL, Regime.WARM, MACHINE)
    assert found.bound is Bound.COMPUTE
    assert found.time_us == pytest.approx(2.0 + 1e13 / 800e6, rel=1e-3)


def test_eight_bit_arithmetic_has_its_own_peak() -> None:
    moved = Traffic(MIB, 0, 0, 10**13, math="int8")
    assert time_us(moved) == pytest.approx(2.0 + 1e13 / 1600e6, rel=1e-3)


def test_a_peak_that_was_not_measured_is_that_of_bf16() -> None:
    moved = Traffic(MIB, 0, 0, 10**13, math="fp8")
    assert time_us(moved) == pytest.approx(2.0 + 1e13 / 800e6, rel=1e-3)


def test_conversion_bounds_weights_stored_in_four_bits() -> None:
    terms = exactly(
        Precision.W4A16, launches=1.0, math_efficiency=1.0, dequantization_efficiency=1.0
    )
    moved = Traffic(8 * MIB, 0, 0, 2, dequantized_weights=10**9, tokens=1)
    found = predict(moved, terms, Regime.WARM, MACHINE)
    assert found.bound is Bound.DEQUANTIZATION
    assert found.time_us == pytest.approx(2.0 + 1e9 / 1.2e6, rel=1e-3)
    twice = predict(replace(moved, tokens=129), terms, Regime.WARM, MACHINE)
    assert twice.time_us == pytest.approx(2.0 + 2e9 / 1.2e6, rel=1e-3)


def test_a_conversion_rate_that_was_not_measured_bounds_nothing() -> None:
    machine = replace(MACHINE, dequantization_tweights_s=None)
    moved = Traffic(8 * MIB, 0, 0, 2, dequantized_weights=10**9, tokens=1)
    terms = default_terms(Precision.W4A16)
    assert predict(moved, terms, Regime.WARM, machine).bound is not Bound.DEQUANTIZATION


def test_tokens_are_computed_in_whole_tiles() -> None:
    work = {m: Traffic(MIB, 0, 0, m * 10**11, tokens=m) for m in (1, 16, 17, 32)}
    times = {m: time_us(moved) for m, moved in work.items()}
    assert times[1] == pytest.approx(times[16], rel=1e-6)
    assert times[17] == pytest.approx(times[32], rel=1e-6)
    assert times[17] > 1.9 * times[16]


def test_blocks_come_in_whole_waves() -> None:
    moved = Traffic(MIB, 0, 0, 10**12)

    def with_blocks(count: int | None) -> float:
        return predict(moved, IDEAL, Regime.WARM, MACHINE, count).time_us - 2.0

    assert with_blocks(200) == pytest.approx(with_blocks(None))
    assert with_blocks(101) == pytest.approx(with_blocks(None) * 200 / 101, rel=1e-3)
    assert with_blocks(25) == pytest.approx(with_blocks(None) * 4, rel=1e-3)


def test_a_separate_activation_pass_costs_its_bytes() -> None:
    terms = exactly(Precision.W8A8, activation_pass_efficiency=0.5)
    without = replace(terms, activation_pass_efficiency=None)
    moved = Traffic(8 * MIB, 16 * MIB, MIB, 10**9, math="int8")
    a, b = (predict(moved, t, Regime.WARM, MACHINE).time_us for t in (terms, without))
    assert a - b == pytest.approx(1.5 * 16 * MIB / 1.5e6, rel=1e-6)


def test_the_formula_agrees_with_plain_arithmetic() -> None:
    terms = exactly(
        Precision.BF16,
        launches=1.2,
        l2_efficiency=0.7,
        dram_efficiency=0.9,
        math_efficiency=0.3,
    )
    for moved in grid():
        expected = by_hand_us(moved, 1.2, 0.7, 0.9, 0.3)
        found = predict(moved, terms, Regime.WARM, MACHINE)
        assert found.time_us == pytest.approx(expected, rel=1e-9)


def test_measured_curves_replace_the_plateaus() -> None:
    curves = replace(
        MACHINE,
        warm=((4.0 * MIB, 32.0 * MIB), (1.5, 6.5)),
        cold=((4.0 * MIB, 512.0 * MIB), (2.5, 180.0)),
    )
    warm = predict(streamed(4 * MIB), IDEAL, Regime.WARM, curves)
    cold = predict(streamed(4 * MIB), IDEAL, Regime.COLD, curves)
    assert (warm.time_us, cold.time_us) == (pytest.approx(3.5), pytest.approx(4.5))
    half = predict(streamed(2 * MIB), IDEAL, Regime.COLD, curves)
    assert half.time_us == pytest.approx(2.0 + 1.25)
    beyond = predict(streamed(1024 * MIB), IDEAL, Regime.COLD, curves)
    assert beyond.time_us == pytest.approx(182.0 + 512 * MIB / 3e6, rel=1e-3)


def test_in_situ_lies_between_warm_and_cold() -> None:
    terms = default_terms(Precision.BF16)
    warm, cold, unknown = (
        predict(bmm(16, 1), terms, regime, MACHINE)
        for regime in (Regime.WARM, Regime.COLD, Regime.IN_SITU)
    )
    assert warm.time_us < unknown.time_us < cold.time_us
    assert (unknown.low_us, unknown.high_us) == (warm.low_us, cold.high_us)


def test_a_regime_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="regime"):
        predict(bmm(16, 1), IDEAL, Regime.UNKNOWN, MACHINE)


@pytest.mark.parametrize(
    "wrong",
    [
        Traffic(-1, 0, 0, 1),
        Traffic(1, 0, 0, math.nan),  # type: ignore[arg-type]
        Traffic(1, math.inf, 0, 1),  # type: ignore[arg-type]
        Traffic(1, 0, 0, 1, tokens=0),
    ],
)
def test_traffic_no_launch_can_have_is_refused(wrong: Traffic) -> None:
    with pytest.raises(UsageError):
        predict(wrong, IDEAL, Regime.WARM, MACHINE)


def test_no_block_is_refused_and_no_launch_is_no_prediction() -> None:
    with pytest.raises(UsageError, match="blocks"):
        predict(bmm(8, 1), IDEAL, Regime.WARM, MACHINE, 0)
    assert predict_many([], IDEAL, Regime.WARM, MACHINE) == []


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    terms = PRIOR[Precision.W4A16]
    moved = grid(Precision.W4A16)
    assert predict_many(moved, terms, Regime.WARM, MACHINE) == [
        predict(m, terms, Regime.WARM, MACHINE) for m in moved
    ]
