"""The floor: against the measured table, and its limits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from analysis.machines import ABSENT, COLD, H200_READ, MIB, WARM, curve, h200
from hypothesis import example, given
from hypothesis import strategies as st

from kernel_compass.analysis.floor import floor
from kernel_compass.analysis.traffic import traffic
from kernel_compass.measurement.calibration_store import load
from kernel_compass.records.calibration import Access, Basis, Quantity
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Traffic, Workload

H200 = h200()
READ_WRITE = curve(
    Regime.WARM,
    [(1, 1.9), (8, 3.4), (16, 4.9), (32, 7.6), (40, 9.0), (64, 20.0), (128, 37.0)],
    Access.READ_WRITE,
)
WRITING = h200(curves=(WARM, COLD, READ_WRITE))


def reading(mib: float, activations: float = 0, outputs: float = 0, flops: int = 0) -> Traffic:
    return Traffic(int(mib * MIB), int(activations * MIB), int(outputs * MIB), flops)


def us(what: Traffic, regime: Regime, machine=H200, mode=LaunchMode.GRAPH) -> float:
    found = floor(what, regime, machine, mode)
    assert found is not None
    return found.time_us


@pytest.mark.parametrize(("mib", "warm", "cold"), H200_READ)
def test_reading_so_many_bytes_is_the_table(mib: int, warm: float, cold: float) -> None:
    # The two curves cross within their noise beyond L2: warm is never said to be the slower.
    assert us(reading(mib), Regime.WARM) == pytest.approx(min(warm, cold), abs=1e-6)
    assert us(reading(mib), Regime.COLD) == pytest.approx(cold, abs=1e-6)


def test_between_points_it_is_linear() -> None:
    assert us(reading(18), Regime.WARM) == pytest.approx((3.84 + 4.27) / 2)
    assert us(reading(18), Regime.COLD) == pytest.approx((5.93 + 7.03) / 2)


def test_it_names_the_level_and_the_basis() -> None:
    assert floor(reading(16), Regime.WARM, H200).bound == "l2"
    assert floor(reading(16), Regime.COLD, H200).bound == "dram"
    assert floor(reading(64), Regime.WARM, H200).bound == "dram"
    assert floor(reading(0.25), Regime.WARM, H200).bound == "launch"
    assert floor(reading(16), Regime.WARM, H200).basis is Basis.MEASURED
    assert floor(reading(16), Regime.WARM, H200).notes == ()


def test_outside_the_measured_range_it_says_so_and_goes_on() -> None:
    beyond = floor(reading(1024), Regime.COLD, H200)
    assert beyond.basis is Basis.EXTRAPOLATED
    assert "beyond the largest point" in beyond.notes[0]
    assert beyond.time_us == pytest.approx(120.24 + (120.24 - 61.34) * 2)
    below = floor(reading(0.5), Regime.WARM, H200)
    assert below.basis is Basis.EXTRAPOLATED
    assert below.time_us == pytest.approx((1.08 + 1.76) / 2)
    assert us(reading(0), Regime.WARM) == pytest.approx(1.08)


@pytest.mark.parametrize(
    ("weights", "outputs", "warm", "cold"),
    [(4.06, 0.125, 2.00, 2.72), (4.06, 8, 3.40, 4.03), (8.25, 8, 4.17, 5.07), (64, 64, 35.8, 35.8)],
)
def test_outputs_cost_what_a_streaming_kernel_measured(
    weights: float, outputs: float, warm: float, cold: float
) -> None:
    """A streaming kernel that writes all of C, timed by slopes on such a card; the table's small
    cells hold up to 0.4 us of the replay's own launch, and without a read_write curve large outputs
    count as reads."""
    for regime, time in ((Regime.WARM, warm), (Regime.COLD, cold)):
        expected = pytest.approx(time, abs=max(0.4, 0.12 * time))
        assert us(reading(weights, 0, outputs), regime) == expected


def test_cold_does_not_pay_the_launch_twice() -> None:
    alone = us(reading(32), Regime.COLD)
    assert us(reading(32, 0.03, 0.125), Regime.COLD) - alone < 0.1


def test_in_situ_lies_between_warm_and_cold() -> None:
    found = floor(reading(16, 1, 1), Regime.IN_SITU, H200)
    assert found.time_us == us(reading(16, 1, 1), Regime.WARM)
    assert found.high_us == us(reading(16, 1, 1), Regime.COLD)


def test_arithmetic_bounds_it() -> None:
    big = traffic(Workload(Op.LINEAR, 1, 8192, 8192, 8192), Precision.BF16)
    found = floor(big, Regime.WARM, H200)
    assert found.bound == "compute"
    assert found.time_us == pytest.approx(1.08 + 2 * 8192**3 / 733e6)
    unknown = h200(peak_tflops={})
    assert floor(big, Regime.WARM, unknown) is None
    assert floor(big, Regime.IN_SITU, unknown) is None
    assert floor(replace(big, flops=0), Regime.WARM, unknown).bound == "dram"


def test_an_eager_launch_takes_the_longer_of_its_issue_and_its_work() -> None:
    short = floor(reading(16), Regime.WARM, H200, LaunchMode.EAGER)
    assert (short.time_us, short.bound) == (24.0, "launch")
    assert short.basis is Basis.MEASURED
    long = floor(reading(512), Regime.WARM, H200, LaunchMode.EAGER)
    assert long == floor(reading(512), Regime.WARM, H200, LaunchMode.GRAPH)
    assert floor(reading(16), Regime.WARM, h200(t0_eager_us=ABSENT), LaunchMode.EAGER) is None


def test_a_missing_cold_curve_is_derived_and_says_so() -> None:
    found = floor(reading(16), Regime.COLD, h200(curves=(WARM,)))
    assert found.basis is Basis.EXTRAPOLATED
    assert any("derived" in note for note in found.notes)
    assert found.time_us == pytest.approx(5.93, rel=0.20)
    assert us(reading(512), Regime.COLD, h200(curves=(WARM,))) == pytest.approx(120.24, rel=0.02)


def test_nothing_known_is_none_not_a_guess() -> None:
    assert floor(reading(16), Regime.WARM, h200(curves=())) is None
    assert floor(reading(16), Regime.COLD, h200(curves=(), c_eff_bytes=ABSENT)) is None
    assert floor(reading(16), Regime.COLD, h200(curves=(WARM,), c_eff_bytes=ABSENT)) is None
    assert floor(reading(16), Regime.IN_SITU, h200(curves=())) is None
    assert floor(reading(16), Regime.UNKNOWN, H200) is None


def test_an_extrapolated_curve_makes_an_extrapolated_floor() -> None:
    guessed = curve(Regime.COLD, [(1, 2.0), (512, 121.0)], basis=Basis.EXTRAPOLATED)
    found = floor(reading(16), Regime.COLD, h200(curves=(WARM, guessed)))
    assert found.basis is Basis.EXTRAPOLATED
    assert "itself extrapolated" in found.notes[0]


def test_writes_cost_more_where_that_was_calibrated() -> None:
    half = reading(4, 0, 4)
    assert us(half, Regime.WARM, WRITING) == pytest.approx(3.4)
    assert us(half, Regime.WARM) == pytest.approx(2.88)
    assert "writes are taken" in floor(half, Regime.WARM, H200).notes[0]
    assert floor(half, Regime.WARM, WRITING).basis is Basis.MEASURED


def test_noise_in_a_curve_cannot_make_fewer_bytes_slower() -> None:
    noisy = curve(Regime.WARM, [(1, 1.8), (2, 9.9), (4, 2.4), (64, 20.0)])
    machine = h200(curves=(noisy,))
    assert us(reading(2), Regime.WARM, machine) <= us(reading(4), Regime.WARM, machine)


SHEET = {"int8_tflops": Quantity(1979.0, Basis.DATASHEET, "a datasheet")}


def test_an_unmeasured_peak_is_bounded_by_the_datasheets() -> None:
    """16384 x 8192 x 8192 in 8 bits: never faster than the vendor's own bound allows."""
    big = traffic(Workload(Op.LINEAR, 1, 16384, 8192, 8192), Precision.W8A8)
    poor = h200(peak_tflops={"bf16": H200.peak_tflops["bf16"]}, datasheet=SHEET)
    found = floor(big, Regime.WARM, poor)
    assert found.bound == "compute"
    assert big.flops / found.time_us / 1e6 < 1979.0
    assert found.time_us == pytest.approx(1.08 + big.flops / 1979e6)
    assert found.basis is Basis.EXTRAPOLATED
    assert found.notes == ("the int8 peak is the datasheet's, which no kernel reaches",)
    few = floor(traffic(Workload(Op.LINEAR, 1, 1, 8192, 8192), Precision.W8A8), Regime.WARM, poor)
    assert not any("datasheet" in note for note in few.notes)


def test_arithmetic_that_might_decide_at_a_reached_rate_makes_it_a_guess() -> None:
    poor = h200(peak_tflops={}, datasheet=SHEET)
    stream = us(reading(64), Regime.WARM)
    near = replace(reading(64, flops=int(0.9 * stream * 1979e6)), math="int8")
    found = floor(near, Regime.WARM, poor)
    assert found.time_us == stream
    assert found.basis is Basis.EXTRAPOLATED
    far = replace(near, flops=near.flops // 4)
    assert floor(far, Regime.WARM, poor).basis is Basis.MEASURED


def test_eight_bits_take_the_faster_of_fp8_and_int8() -> None:
    big = traffic(Workload(Op.LINEAR, 1, 8192, 8192, 8192), Precision.W8A8)
    assert us(big, Regime.WARM) == pytest.approx(1.08 + big.flops / 1408e6)
    old = h200(peak_tflops={"int8": H200.peak_tflops["int8"]})
    assert us(big, Regime.WARM, old) == pytest.approx(1.08 + big.flops / 902e6)


@pytest.mark.parametrize("name", ["a100", "h100", "b200", "b300", "h200"])
@pytest.mark.parametrize("precision", Precision)
def test_no_shipped_floor_is_faster_than_the_datasheet(name: str, precision: Precision) -> None:
    machine = load(name)
    big = traffic(Workload(Op.LINEAR, 1, 16384, 8192, 8192), precision)
    names = ("fp8", "int8") if precision is Precision.W8A8 else ("bf16",)
    bound = max(machine.datasheet[f"{n}_tflops"].value or 0.0 for n in names)
    for regime in (Regime.WARM, Regime.COLD):
        found = floor(big, regime, machine)
        assert big.flops / found.time_us / 1e6 <= bound


SIZES = st.floats(0, 600, allow_nan=False)


@given(SIZES, SIZES, SIZES, SIZES, st.sampled_from([Regime.WARM, Regime.COLD]))
def test_more_bytes_never_take_less(
    weights: float, more: float, activations: float, outputs: float, regime: Regime
) -> None:
    for machine in (H200, WRITING):
        base = us(reading(weights, activations, outputs), regime, machine)
        assert us(reading(weights + more, activations, outputs), regime, machine) >= base - 1e-9
        assert us(reading(weights, activations + more, outputs), regime, machine) >= base - 1e-9
        assert us(reading(weights, activations, outputs + more), regime, machine) >= base - 1e-9


POINTS = st.lists(st.tuples(st.floats(0.1, 500), st.floats(0.5, 200)), min_size=1, max_size=12)


# Two points a byte apart: beyond them every byte costs 120 us.
@example([(1, 1)], [(1, 1)], [(500, 121), (499.99999999999994, 1)], 1, (0, 0, 254), 0)
@given(POINTS, POINTS, POINTS, st.floats(1, 400), st.tuples(SIZES, SIZES, SIZES), SIZES)
def test_whatever_the_curves_more_bytes_never_take_less(
    warm, cold, both, capacity, sizes, more
) -> None:
    """Noise, doubled sizes and cliffs anywhere: the floor stays finite and monotone."""
    machine = h200(
        curves=(
            curve(Regime.WARM, sorted(warm)),
            curve(Regime.COLD, sorted(cold)),
            curve(Regime.WARM, sorted(both), Access.READ_WRITE),
        ),
        c_eff_bytes=replace(H200.c_eff_bytes, value=capacity * MIB),
    )
    for regime in (Regime.WARM, Regime.COLD):
        base = us(reading(*sizes), regime, machine)
        assert 0 <= base < math.inf
        for i in range(3):
            larger = [size + more * (i == j) for j, size in enumerate(sizes)]
            assert us(reading(*larger), regime, machine) >= base * (1 - 1e-12) - 1e-6


@given(SIZES, SIZES, SIZES)
def test_warm_is_never_slower_than_cold(weights: float, activations: float, outputs: float) -> None:
    what = reading(weights, activations, outputs)
    assert us(what, Regime.WARM) <= us(what, Regime.COLD) + 1e-9
