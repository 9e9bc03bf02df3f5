"""Timing on a real GPU: regimes, fallbacks, faults; the process stays usable after each."""

from __future__ import annotations

import ctypes

import pytest

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.measurement import ColdMethod, LaunchMode
from kernel_compass.records.profile import Regime

pytestmark = pytest.mark.gpu
MIB = 1 << 20
SHORT = TimingOptions(samples=9)


@pytest.fixture(scope="module")
def device():
    return TorchDevice()


@pytest.fixture(scope="module")
def torch(device):
    return device.torch


@pytest.fixture
def weight(torch):
    return torch.randn(16 * MIB // 2, device="cuda").to(torch.bfloat16)


def bmm(torch, columns, tokens=1):
    a = torch.randn(128, tokens, 128, device="cuda").to(torch.bfloat16)
    w = torch.randn(128, 128, columns, device="cuda").to(torch.bfloat16)
    return Subject(lambda w, a: torch.bmm(a, w), streamed=(w,), resident=(a,))


def refused(device, subject, regime=Regime.WARM):
    with pytest.raises(MeasurementError) as caught:
        measure(subject, device, regime, options=SHORT)
    return caught.value


@pytest.fixture(autouse=True)
def usable_afterwards(device, torch):
    """Whatever a test did, this process can still time something."""
    yield
    x = torch.randn(1 << 20, device="cuda")
    after = measure(Subject(torch.neg, (x,)), device, options=SHORT)
    assert after.launch_mode is LaunchMode.GRAPH
    assert 0.5 < after.median_us < 20


def test_a_call_comes_after_what_its_operands_still_wait_for(device, torch):
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda._sleep(100_000_000)  # some 50 ms
    x.fill_(1.0)
    device.run(lambda: x.mul_(2.0))
    assert x.eq(2.0).all()
    torch.cuda._sleep(100_000_000)
    x.fill_(1.0)
    device.elapsed_us(lambda: x.mul_(2.0), primed=False)
    assert x.eq(2.0).all()


def test_cold_takes_longer_than_warm_and_both_methods_agree(device, torch):
    subject = bmm(torch, 512)
    warm = measure(subject, device, Regime.WARM)
    cold = measure(subject, device, Regime.COLD)
    flushed = measure(
        subject, device, Regime.COLD, options=TimingOptions(cold_method=ColdMethod.FLUSH)
    )
    assert 1.2 < cold.median_us / warm.median_us < 1.9
    assert 0.75 < flushed.median_us / cold.median_us < 1.35
    assert cold.operand_sets * cold.streamed_bytes >= 8 * device.l2_bytes
    assert cold.launches_per_replay % cold.operand_sets == 0


def test_in_situ_lies_where_the_calls_in_between_leave_the_operands(device, torch, weight):
    subject = bmm(torch, 512)
    other = torch.randn(512 * MIB // 2, device="cuda").to(torch.bfloat16)
    warm = measure(subject, device, Regime.WARM)
    cold = measure(subject, device, Regime.COLD)
    little = measure(subject, device, Regime.IN_SITU, between=[weight[: 1 << 18].neg])
    much = measure(subject, device, Regime.IN_SITU, between=[other.sum])
    assert little.median_us == pytest.approx(warm.median_us, rel=0.25)
    assert much.median_us == pytest.approx(cold.median_us, rel=0.35)


def test_a_launch_costs_more_eager_than_in_a_graph(device, torch):
    subject = bmm(torch, 256)
    graph = measure(subject, device, launch_mode=LaunchMode.GRAPH)
    eager = measure(subject, device, launch_mode=LaunchMode.EAGER)
    assert eager.launch_mode is LaunchMode.EAGER
    assert eager.median_us > graph.median_us


def test_what_cannot_be_captured_is_timed_eager_with_the_reason(device, torch, weight):
    def waits(w):
        return w.sum().item()

    found = measure(Subject(waits, (weight,)), device, options=SHORT)
    assert found.launch_mode is LaunchMode.EAGER
    assert found.fallback_reason


def test_allocation_in_capture_is_no_obstacle(device, torch, weight):
    found = measure(Subject(lambda w: torch.empty_like(w).copy_(w), (weight,)), device)
    assert found.launch_mode is LaunchMode.GRAPH


def test_a_callable_that_raises(device, torch):
    def broken():
        raise ValueError("no such shape")

    error = refused(device, broken)
    assert error.cause is MeasurementCause.CALLABLE_FAILED
    assert "no such shape" in error.found


def test_a_callable_that_raises_only_while_capturing(device, torch, weight):
    def fickle(w):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not in a graph")
        return w.neg()

    found = measure(Subject(fickle, (weight,)), device, options=SHORT)
    assert found.launch_mode is LaunchMode.EAGER
    assert "not in a graph" in found.fallback_reason


@pytest.mark.parametrize("answer", [None, 3.0])
def test_a_callable_that_does_nothing_on_the_gpu(device, answer):
    assert refused(device, lambda: answer).cause is MeasurementCause.NO_GPU_WORK


def test_a_callable_that_computes_on_the_cpu(device, torch):
    x = torch.randn(1000)
    assert refused(device, Subject(torch.neg, (x,))).cause is MeasurementCause.NO_GPU_WORK


def test_more_memory_than_the_card_has(device, torch):
    error = refused(device, lambda: torch.empty(1 << 42, device="cuda"))
    assert error.cause is MeasurementCause.OUT_OF_MEMORY


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_inputs(device, torch, value):
    x = torch.full((1 << 20,), value, device="cuda")
    assert refused(device, Subject(torch.neg, (x,))).cause is MeasurementCause.ZERO_INPUTS
    assert refused(device, lambda: torch.neg(x)).cause is MeasurementCause.ZERO_INPUTS


def test_outputs_may_be_zeros(device, torch, weight):
    out = torch.zeros_like(weight)
    subject = Subject(lambda w, o: torch.neg(w, out=o), (weight,), outputs=(out,))
    assert measure(subject, device, options=SHORT).median_us > 1


@pytest.mark.parametrize("starts_after", [True, False])
def test_work_left_on_a_side_stream(device, torch, weight, starts_after):
    side = torch.cuda.Stream()

    def cheat(w):
        w[:8].neg()
        if starts_after:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            return w.neg()

    assert refused(device, Subject(cheat, (weight,))).cause is MeasurementCause.SIDE_STREAM


def test_a_side_stream_that_is_waited_for(device, torch, weight):
    side = torch.cuda.Stream()

    def honest(w):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = w.neg()
        torch.cuda.current_stream().wait_stream(side)
        return y

    assert measure(Subject(honest, (weight,)), device, options=SHORT).median_us > 1


def test_a_carve_out_for_persisting_accesses(device, torch, weight):
    driver = ctypes.CDLL("libcuda.so.1")
    assert driver.cuCtxSetLimit(6, ctypes.c_size_t(4 * MIB)) == 0
    try:
        error = refused(device, Subject(torch.neg, (weight,)))
    finally:
        driver.cuCtxSetLimit(6, ctypes.c_size_t(device.carve_out()[0]))
    assert error.cause is MeasurementCause.L2_PERSISTING


def test_cold_refuses_sets_that_share_memory(device, torch):
    big = torch.randn(1 << 28, device="cuda")
    half = big[: 1 << 27]
    subject = Subject(torch.sum, (half,), sets=((big[1000 : (1 << 27) + 1000],),))
    assert refused(device, subject, Regime.COLD).cause is MeasurementCause.NOT_COLD


def test_cold_refuses_sets_that_fit_into_l2(device, torch, weight):
    subject = Subject(torch.neg, (weight,), sets=((weight.clone(),),))
    assert refused(device, subject, Regime.COLD).cause is MeasurementCause.NOT_COLD


def test_what_goes_beside_the_number(device, weight, torch):
    found = measure(Subject(torch.neg, (weight,)), device, options=SHORT)
    assert found.environment.device.l2_bytes == device.l2_bytes
    assert found.environment.driver
    assert found.clocks.sm_mhz_max > 500
    assert len(found.samples_us) == SHORT.samples
