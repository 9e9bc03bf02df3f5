"""Timing on a simulated GPU whose truth is known."""

from __future__ import annotations

import functools
from dataclasses import replace
from statistics import median

import pytest
from recipes import read

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.paired import pair
from kernel_compass.measurement.simulated import SimulatedDevice, SimulatedOperand
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.records.measurement import ColdMethod, LaunchMode
from kernel_compass.records.profile import Regime

MIB = 1 << 20
ZEROS = SimulatedOperand(MIB, constant=True)


def launch_keyword(device, w):
    device.launch(w)


class Layer:
    """Weights in a dictionary, as a module keeps its parameters."""

    def __init__(self, device, weight, bias=None):
        self.device = device
        self.weights = {"w": weight, "b": bias or SimulatedOperand(64)}

    def forward(self):
        self.device.launch(*self.weights.values())

    __call__ = forward


FLUSH = TimingOptions(cold_method=ColdMethod.FLUSH)


def time_of(device, mib, tbs):
    """What a launch that moves so much at such a rate takes there."""
    return device.launch_us + mib * MIB / tbs / 1e6


def cause_of(subject, device, regime=Regime.WARM, **options):
    with pytest.raises(MeasurementError) as caught:
        measure(subject, device, regime, **options)
    return caught.value.cause


@pytest.mark.parametrize("mib", [0.5, 2, 16, 40])
def test_warm_is_l2_and_cold_is_dram_without_the_replays_own_cost(mib):
    device = SimulatedDevice()
    warm, cold = (
        measure(read(device, mib), device, regime) for regime in (Regime.WARM, Regime.COLD)
    )
    assert warm.median_us == pytest.approx(time_of(device, mib, device.l2_tbs), rel=1e-6)
    assert cold.median_us == pytest.approx(time_of(device, mib, device.dram_tbs), rel=1e-6)
    assert warm.replay_overhead_us == pytest.approx(device.replay_us)
    share = device.replay_us / warm.launches_per_replay
    assert warm.plain_us == pytest.approx(warm.median_us + share)


def test_a_working_set_beyond_l2_is_never_warm():
    device = SimulatedDevice()
    warm = measure(read(device, 100), device)
    assert warm.median_us == pytest.approx(time_of(device, 100, device.dram_tbs))


def test_a_replay_takes_long_enough_and_whole_cycles_of_the_sets():
    device = SimulatedDevice()
    cold = measure(read(device, 3), device, Regime.COLD)
    assert cold.launches_per_replay % cold.operand_sets == 0
    assert cold.launches_per_replay * cold.median_us >= TimingOptions().replay_us
    assert cold.operand_sets * cold.streamed_bytes >= 1 << 30


def test_flushing_and_rotating_agree():
    device = SimulatedDevice()
    rotated = measure(read(device), device, Regime.COLD)
    flushed = measure(read(device), device, Regime.COLD, options=FLUSH)
    assert flushed.median_us == pytest.approx(rotated.median_us, rel=1e-6)
    assert (flushed.cold_method, rotated.cold_method) == (ColdMethod.FLUSH, ColdMethod.ROTATE)


@pytest.mark.parametrize(("between_mib", "tbs"), [(8, "l2_tbs"), (40, "dram_tbs")])
def test_in_situ_finds_what_the_calls_in_between_leave(between_mib, tbs):
    device = SimulatedDevice()
    other = SimulatedOperand(between_mib * MIB)
    found = measure(read(device), device, Regime.IN_SITU, between=[lambda: device.launch(other)])
    own = time_of(device, 16, getattr(device, tbs))
    # What it does to its neighbour counts too: 40 MiB and 16 MiB do not both stay.
    neighbour = 40 * MIB / 1e6 * (1 / device.dram_tbs - 1 / device.l2_tbs)
    expected = own if between_mib == 8 else own + neighbour
    assert found.median_us == pytest.approx(expected, rel=1e-6)


def test_a_regime_may_be_named_as_text():
    device = SimulatedDevice()
    found = measure(read(device), device, "cold", "graph")
    assert (found.regime, found.launch_mode) == (Regime.COLD, LaunchMode.GRAPH)
    assert found.median_us == pytest.approx(time_of(device, 16, device.dram_tbs))


def test_a_subject_may_carry_what_runs_in_between():
    device = SimulatedDevice()
    other = SimulatedOperand(8 * MIB)
    subject = replace(read(device), between=(lambda: device.launch(other),))
    found = measure(subject, device, Regime.IN_SITU)
    assert found.median_us == pytest.approx(time_of(device, 16, device.l2_tbs), rel=1e-6)
    assert measure(subject, device, Regime.WARM).median_us == pytest.approx(found.median_us)


def test_eager_is_what_the_cpu_needs_where_it_is_slower():
    device = SimulatedDevice()
    short = measure(read(device, 2), device, launch_mode=LaunchMode.EAGER)
    long = measure(read(device, 400), device, launch_mode=LaunchMode.EAGER)
    assert short.median_us == pytest.approx(device.issue_us)
    assert long.median_us == pytest.approx(time_of(device, 400, device.dram_tbs))


def test_the_median_holds_against_noise():
    device = SimulatedDevice(noise=0.003)
    found = measure(read(device), device, options=TimingOptions(samples=51))
    truth = time_of(device, 16, device.l2_tbs)
    assert found.median_us == pytest.approx(truth, rel=0.01)
    assert found.quantile_us(0.25) <= found.median_us <= found.quantile_us(0.75)
    assert 0 < found.spread_pct < 3


def test_a_wide_spread_is_said():
    device = SimulatedDevice(noise=0.3)
    found = measure(read(device), device)
    assert any("samples" in warning for warning in found.warnings)


def test_a_slope_lost_in_noise_is_no_time():
    device = SimulatedDevice(noise=30.0, noise_seed=3)
    assert cause_of(read(device), device) is MeasurementCause.UNSTABLE


def test_what_cannot_be_captured_runs_eager_with_the_reason():
    device = SimulatedDevice()

    def waits(weight):
        device.launch(weight)
        device.wait_for_gpu()

    found = measure(Subject(waits, (SimulatedOperand(MIB),)), device)
    assert found.launch_mode is LaunchMode.EAGER
    assert "capturing" in found.fallback_reason


class TestRefusals:
    def test_a_callable_that_raises(self):
        def broken():
            raise KeyError("weight")

        assert cause_of(broken, SimulatedDevice()) is MeasurementCause.CALLABLE_FAILED

    def test_no_work(self):
        assert cause_of(lambda: None, SimulatedDevice()) is MeasurementCause.NO_GPU_WORK

    @pytest.mark.parametrize("where", ["streamed", "resident", "sets", "closure", "partial"])
    def test_constant_inputs_wherever_they_hide(self, where):
        device = SimulatedDevice()
        zeros, good = SimulatedOperand(MIB, constant=True), SimulatedOperand(MIB)
        subjects = {
            "streamed": Subject(device.launch, (zeros,)),
            "resident": Subject(device.launch, (good,), (zeros,)),
            "sets": Subject(device.launch, (good,), sets=((zeros,),)),
            "closure": lambda: device.launch(zeros),
            "partial": functools.partial(device.launch, zeros),
        }
        assert cause_of(subjects[where], device) is MeasurementCause.ZERO_INPUTS

    @pytest.mark.parametrize("how", ["method", "object", "list", "global", "keyword"])
    def test_constant_inputs_of_callables_that_name_none(self, how):
        device = SimulatedDevice()
        layer = Layer(device, SimulatedOperand(MIB, constant=True))
        box = [{"w": layer.weights["w"]}]
        calls = {
            "method": layer.forward,
            "object": layer,
            "list": lambda: device.launch(box[0]["w"]),
            "global": lambda: device.launch(ZEROS),
            "keyword": functools.partial(launch_keyword, device=device, w=ZEROS),
        }
        assert cause_of(calls[how], device) is MeasurementCause.ZERO_INPUTS

    def test_a_small_constant_beside_weights_is_a_bias(self):
        device = SimulatedDevice()
        layer = Layer(device, SimulatedOperand(MIB), SimulatedOperand(1024, constant=True))
        found = measure(layer.forward, device)
        assert found.warnings == ()

    def test_inputs_that_cannot_be_seen_are_said(self):
        device = SimulatedDevice()
        hidden = (SimulatedOperand(MIB) for _ in range(1000))
        found = measure(lambda: device.launch(next(hidden)), device)
        assert any("inputs could not be looked at" in warning for warning in found.warnings)

    def test_outputs_may_be_constant(self):
        device = SimulatedDevice()
        subject = Subject(
            device.launch, (SimulatedOperand(MIB),), outputs=(SimulatedOperand(MIB, True),)
        )
        assert measure(subject, device).median_us > 0

    def test_a_carve_out_that_was_changed(self):
        device = SimulatedDevice(carve_out_bytes=(11 * MIB, 30 * MIB))
        assert cause_of(read(device), device) is MeasurementCause.L2_PERSISTING

    def test_the_drivers_own_carve_out_is_none(self):
        device = SimulatedDevice(carve_out_bytes=(11 * MIB, 11 * MIB))
        assert measure(read(device), device).warnings == ()

    def test_work_on_a_side_stream(self):
        device = SimulatedDevice(side_stream=True)
        assert cause_of(read(device), device) is MeasurementCause.SIDE_STREAM

    def test_side_streams_that_could_not_be_looked_for(self):
        device = SimulatedDevice(side_stream=None)
        assert any("side streams" in w for w in measure(read(device), device).warnings)

    def test_cold_without_streamed_operands(self):
        device, weight = SimulatedDevice(), SimulatedOperand(MIB)

        def call():
            device.launch(weight)

        assert cause_of(call, device, Regime.COLD) is MeasurementCause.NOT_COLD
        assert measure(call, device, Regime.COLD, options=FLUSH).median_us > 0

    def test_sets_that_share_memory(self):
        device, weight = SimulatedDevice(), SimulatedOperand(600 * MIB)
        half = SimulatedOperand(600 * MIB, address=weight.address + 300 * MIB)
        subject = Subject(device.launch, (weight,), sets=((half,),))
        assert cause_of(subject, device, Regime.COLD) is MeasurementCause.NOT_COLD

    def test_an_operand_twice_in_one_set_is_no_sharing(self):
        device, weight = SimulatedDevice(), SimulatedOperand(600 * MIB)
        subject = Subject(device.launch, (weight, weight))
        assert measure(subject, device, Regime.COLD).median_us > 0

    def test_sets_that_fit_into_l2(self):
        device = SimulatedDevice()
        subject = Subject(device.launch, (SimulatedOperand(MIB),), sets=((SimulatedOperand(MIB),),))
        assert cause_of(subject, device, Regime.COLD) is MeasurementCause.NOT_COLD

    def test_a_card_too_small_to_rotate(self):
        device = SimulatedDevice(memory_bytes=100 * MIB)
        assert cause_of(read(device), device, Regime.COLD) is MeasurementCause.OUT_OF_MEMORY

    def test_faster_than_the_memorys_pins_is_not_cold(self):
        device = SimulatedDevice(dram_tbs=8.0)
        assert cause_of(read(device, 100), device, Regime.COLD) is MeasurementCause.NOT_COLD

    @pytest.mark.parametrize("regime", [Regime.IN_SITU, Regime.UNKNOWN, "in_situ", "tepid"])
    def test_a_regime_that_nothing_makes(self, regime):
        device = SimulatedDevice()
        assert cause_of(read(device), device, regime) is MeasurementCause.REGIME
        with pytest.raises(MeasurementError) as caught:
            pair(read(device), read(device), device, regime)
        assert caught.value.cause is MeasurementCause.REGIME

    @pytest.mark.parametrize("kib", [1, 64])
    def test_operands_too_small_to_rotate(self, kib):
        device = SimulatedDevice()
        small = read(device, kib / 1024)
        assert cause_of(small, device, Regime.COLD) is MeasurementCause.NOT_COLD
        assert measure(small, device, Regime.COLD, options=FLUSH).median_us > 0

    @pytest.mark.parametrize("regime", [Regime.WARM, Regime.COLD])
    def test_calls_in_between_belong_in_situ(self, regime):
        device = SimulatedDevice()
        with pytest.raises(MeasurementError, match="in_situ"):
            measure(read(device), device, regime, between=[lambda: None])

    @pytest.mark.parametrize("hide", [lambda w: [w], lambda w: {"w": w}, lambda w: ((w,),)])
    def test_tensors_in_a_streamed_container_would_stay_warm(self, hide):
        device, weight = SimulatedDevice(), SimulatedOperand(16 * MIB)
        subject = Subject(lambda w, box: device.launch(w), (weight, hide(SimulatedOperand(MIB))))
        assert cause_of(subject, device, Regime.COLD) is MeasurementCause.NOT_COLD
        assert measure(subject, device).median_us > 0

    @pytest.mark.parametrize("at", [2, 10, 60])
    def test_a_callable_that_raises_later(self, at):
        device, calls = SimulatedDevice(), iter(range(10**6))

        def fickle(weight):
            device.launch(weight)
            if next(calls) >= at:
                raise ValueError("enough")

        subject = Subject(fickle, (SimulatedOperand(MIB),))
        assert cause_of(subject, device) is MeasurementCause.CALLABLE_FAILED

    def test_after_a_refusal_the_next_one_is_timed(self):
        device = SimulatedDevice()
        cause_of(lambda: 1 / 0, device)
        assert measure(read(device), device).median_us > 0


class TestClocks:
    def test_a_clock_that_moved_is_said(self):
        device = SimulatedDevice(clock_mhz=(1980.0, 1900.0))
        found = measure(read(device), device)
        assert found.clocks.moved_pct == pytest.approx(100 * 80 / 1980)
        assert any("clock moved" in warning for warning in found.warnings)

    def test_a_small_move_is_not(self):
        device = SimulatedDevice(clock_mhz=(1980.0, 1965.0))
        assert measure(read(device), device).warnings == ()

    def test_throttling_is_said_by_name(self):
        device = SimulatedDevice(throttle=("sw_power_cap",))
        assert any("sw_power_cap" in w for w in measure(read(device), device).warnings)

    def test_unread_clocks_are_said(self):
        device = SimulatedDevice()
        device.clocks = lambda: None
        found = measure(read(device), device)
        assert found.clocks.sm_mhz_max is None
        assert any("clocks were not read" in warning for warning in found.warnings)


class TestPairs:
    @pytest.mark.parametrize("regime", [Regime.WARM, Regime.COLD])
    def test_both_sides_replay_the_same_number_of_launches(self, regime):
        device = SimulatedDevice()
        timer = pair(read(device, 16), read(device, 3), device, regime)
        assert timer.baseline.launches == timer.candidate.launches
        for plan in (timer.baseline, timer.candidate):
            assert plan.launches % plan.sets == 0

    def test_the_ratio_is_that_of_the_truth(self):
        device = SimulatedDevice(noise=0.002)
        pairs = pair(read(device, 16), read(device, 8), device).take(50)
        ratio = median(a / b for a, b in zip(pairs.baseline_us, pairs.candidate_us, strict=True))
        truth = time_of(device, 16, device.l2_tbs) / time_of(device, 8, device.l2_tbs)
        assert ratio == pytest.approx(truth, rel=0.005)

    def test_what_speaks_against_the_times_comes_along(self):
        device = SimulatedDevice(clock_mhz=(1980.0, 1800.0), side_stream=None)
        found = pair(read(device), read(device), device).take(20)
        assert any("clock moved" in warning for warning in found.warnings)
        assert any("side streams" in warning for warning in found.warnings)
        assert found.environment.device.l2_bytes == device.l2_bytes

    def test_faster_than_the_memorys_pins_is_not_cold(self):
        device = SimulatedDevice(dram_tbs=8.0)
        timer = pair(read(device, 100), read(device, 100), device, Regime.COLD)
        with pytest.raises(MeasurementError) as caught:
            timer.take(5)
        assert caught.value.cause is MeasurementCause.NOT_COLD

    def test_one_that_cannot_be_captured_makes_both_eager(self):
        device = SimulatedDevice()

        def waits(weight):
            device.launch(weight)
            device.wait_for_gpu()

        timer = pair(read(device), Subject(waits, (SimulatedOperand(MIB),)), device)
        assert timer.take(3).launch_mode is LaunchMode.EAGER
        assert timer.candidate.mode is LaunchMode.EAGER
        assert any("eager: " in warning for warning in timer.warnings)

    def test_a_drift_touches_both_alike(self):
        device = SimulatedDevice()
        timer = pair(read(device, 16), read(device, 16), device)
        whole = device.elapsed_us
        slower = iter(1 + 0.001 * step for step in range(10_000))
        device.elapsed_us = lambda *a, **k: whole(*a, **k) * next(slower)
        pairs = timer.take(40)
        ratio = median(a / b for a, b in zip(pairs.baseline_us, pairs.candidate_us, strict=True))
        assert ratio == pytest.approx(1.0, abs=0.003)


def test_pairs_with_operands_too_small_to_rotate_are_flushed():
    device = SimulatedDevice()
    large, small = read(device, 0.2), read(device, 0.05)
    timer = pair(large, small, device, Regime.COLD)
    found = timer.take(4)
    assert any("flushing" in one for one in found.warnings)
    for mib, times in ((0.2, found.baseline_us), (0.05, found.candidate_us)):
        assert median(times) == pytest.approx(time_of(device, mib, device.dram_tbs), rel=1e-6)
    rotated = pair(large, large, device, Regime.COLD).take(4)
    assert not any("flushing" in one for one in rotated.warnings)
    with pytest.raises(MeasurementError) as caught:
        rotate = TimingOptions(cold_method=ColdMethod.ROTATE)
        pair(large, small, device, Regime.COLD, options=rotate)
    assert caught.value.cause is MeasurementCause.NOT_COLD


class Counting(SimulatedDevice):
    """Counts what it works out."""

    touched = 0

    def _touch(self, operand):
        self.touched += 1
        return super()._touch(operand)


def test_a_replay_from_a_known_cache_is_worked_out_once():
    device = Counting()
    timer = pair(read(device, 0.2), read(device, 0.2), device, Regime.COLD)
    first = timer.take(2)
    known = device.touched
    later = timer.take(10)
    assert device.touched == known, "thousands of launches a replay, and each was seen before"
    assert later.baseline_us[-1] == pytest.approx(first.baseline_us[-1])
    other = SimulatedOperand(MIB)
    warm = device.elapsed_us(device.capture([lambda: device.launch(other)] * 2))
    again = device.elapsed_us(device.capture([lambda: device.launch(other)] * 2))
    assert again < warm, "another cache is another time"
