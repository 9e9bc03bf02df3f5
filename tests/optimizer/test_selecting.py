"""Stage 3: what is worked on first, and why the rest is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_compass.optimizer.selecting import select
from kernel_compass.records.profile import Regime
from kernel_compass.records.selection import Measured, PassedOver

WARM, COLD = Regime.WARM, Regime.COLD


def test_the_largest_gain_of_the_whole_comes_first():
    found = select(
        [
            Measured("small but far", WARM, 10.0, 1.0),
            Measured("large and near", WARM, 60.0, 45.0),
            Measured("large and far", WARM, 30.0, 10.0),
        ]
    )
    assert [one.workload for one in found] == ["large and far", "large and near", "small but far"]
    assert found[0].gain == pytest.approx(100 / 80)
    assert found[0].share == pytest.approx(0.3)
    assert found[0].headroom == pytest.approx(3.0)


def test_regimes_are_added_up_and_the_least_headroom_is_said():
    (one,) = select([Measured("w", WARM, 4.0, 2.0), Measured("w", COLD, 6.0, 5.0)])
    assert one.headroom == pytest.approx(1.2)
    assert one.gain == pytest.approx(10 / 7)


def test_how_often_a_workload_runs_counts():
    found = select([Measured("once", WARM, 9.0, 1.0), Measured("often", WARM, 1.0, 0.5, 61)])
    assert found[0].workload == "often"


@pytest.mark.parametrize(
    ("rows", "reason", "words"),
    [
        ([("w", 100.0, 99.5)], PassedOver.AT_ITS_FLOOR, "faster, under 2"),
        ([("w", 1.0, 0.1), ("rest", 99.0, 10.0)], PassedOver.SMALL_SHARE, "were it free"),
        ([("w", 100.0, None)], PassedOver.NO_FLOOR, "calibrate"),
        ([("w", 1.0, None), ("rest", 99.0, 10.0)], PassedOver.SMALL_SHARE, "were it free"),
    ],
)
def test_what_is_passed_over_has_its_reason(rows, reason, words):
    found = {one.workload: one for one in select([Measured(n, WARM, t, f) for n, t, f in rows])}
    assert found["w"].passed_over is reason
    assert words in found["w"].why


def test_a_kernel_faster_than_its_floor_gains_nothing():
    (one,) = select([Measured("w", WARM, 5.0, 6.0)])
    assert one.passed_over is PassedOver.AT_ITS_FLOOR
    assert one.gain == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.05, 1e4)), min_size=1, max_size=8))
def test_the_gain_is_amdahls(times):
    rows = [Measured(str(i), WARM, t, f) for i, (t, f) in enumerate(times)]
    total = sum(t for t, _ in times)
    for one in select(rows):
        t, f = times[int(one.workload)]
        assert one.gain == pytest.approx(total / (total - t + min(f, t)))
