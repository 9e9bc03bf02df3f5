"""Spans, gaps, runs and diagnoses of timelines against sums made another way."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.timeline_report import report_timeline
from kernel_compass.analysis.timeline_runs import FixedCost, launch_runs
from kernel_compass.analysis.timeline_spans import device_uses, gaps_before, stream_uses
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis, Flag, Headroom, Limiter
from kernel_compass.records.profile import Regime, Source, SourceFormat
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.records.timeline import Behind
from kernel_compass.records.trace import ApiCall, GpuEvent, GpuWork, LaunchShape, OpCall, Trace

SOURCE = Source("t.json", SourceFormat.KINETO_TRACE, Regime.IN_SITU)
MM = OpCall(
    "aten::mm", ((16, 4096), (4096, 14336)), ("c10::BFloat16", "c10::BFloat16"),
    ((4096, 1), (1, 4096)), ("", ""),
)  # fmt: skip
MM_BYTES = 2 * (16 * 4096 + 4096 * 14336 + 16 * 14336)


def kernel(start, duration, name="k", stream=7, device=0, call=None, **rest) -> GpuEvent:
    work = rest.pop("work", GpuWork.KERNEL)
    return GpuEvent(work, name, device, stream, start, duration, call=call, **rest)


def trace(events, **rest) -> Trace:
    calls = {}
    for event in events:
        if event.call is not None:
            calls.setdefault(event.call.name, set()).add(
                (event.call.start_us, event.call.duration_us)
            )
    durations = {name: tuple(d for _, d in sorted(known)) for name, known in calls.items()}
    ordered = tuple(sorted(events, key=lambda e: (e.start_us, e.end_us)))
    return Trace(SOURCE, rest.pop("device", None), ordered, durations, **rest)


def report(events, **rest) -> Report:
    ceilings, floor = rest.pop("ceilings", None), rest.pop("floor", None)
    return report_timeline(trace(events, **rest), ceilings=ceilings, floor=floor)


def row(found: Report, name: str = "k") -> ReportKernel:
    return next(item for item in found.kernels if item.kernel.name == name)


def diagnosis(found: Report, name: str = "k") -> Diagnosis:
    answer = row(found, name).kernel.diagnosis
    assert answer is not None
    return answer


# Times in whole nanoseconds of a short trace, so that a raster of them can be counted.
TIMES = st.tuples(
    st.integers(0, 400), st.integers(0, 40), st.sampled_from([7, 13]), st.sampled_from([0, 1])
)


def raster(events: list[tuple[int, int]]) -> set[int]:
    """The nanoseconds in which one of the events runs."""
    return {ns for start, duration in events for ns in range(start, start + duration)}


@settings(max_examples=200, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=30))
def test_busy_and_gaps_agree_with_a_raster(times) -> None:
    events = sorted(
        (kernel(s / 1e3, d / 1e3, "k", stream, device) for s, d, stream, device in times),
        key=lambda e: (e.start_us, e.end_us),
    )
    found = stream_uses(events)
    assert sum(use.events for use in found) == len(times)
    for use in found:
        own = [(s, d) for s, d, stream, dev in times if (stream, dev) == (use.stream, use.device)]
        start, end = min(s for s, _ in own), max(s + d for s, d in own)
        assert use.busy_us == pytest.approx(len(raster(own)) / 1e3, abs=1e-9)
        assert use.span_us == pytest.approx((end - start) / 1e3, abs=1e-9)
        assert use.busy_us + use.gaps_us == pytest.approx(use.span_us, abs=1e-9)
        total = sum(d for _, d in own) / 1e3
        assert use.busy_us + use.overlap_us == pytest.approx(total, abs=1e-9)
        before = [b.gap_us for e, b in zip(events, gaps_before(events), strict=True)
                  if (e.stream, e.device) == (use.stream, use.device)]  # fmt: skip
        assert before[0] is None
        assert sum(gap or 0.0 for gap in before) == pytest.approx(use.gaps_us, abs=1e-9)
    for use in device_uses(events)[0]:
        own = [(s, d) for s, d, _, device in times if device == use.device]
        assert use.busy_us == pytest.approx(len(raster(own)) / 1e3, abs=1e-9)
        assert use.busy_us + use.idle_us == pytest.approx(use.span_us, abs=1e-9)
        assert use.kernel_us == pytest.approx(sum(d for _, d in own) / 1e3, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_reports_add_up(times, rng: random.Random) -> None:
    names = ["a", "b", "c"]
    events = [
        kernel(s / 1e3, d / 1e3, rng.choice(names), stream, device)
        for s, d, stream, device in times
    ]
    found = report(events)
    assert sum(item.kernel.launches for item in found.kernels) == len(events)
    total = sum(d for _, d, _, _ in times) / 1e3
    assert sum(item.kernel.duration_us for item in found.kernels) == pytest.approx(total)
    if total:
        assert sum(item.share_of_time for item in found.kernels) == pytest.approx(1.0)
    assert found.timeline is not None
    assert sum(use.kernel_us for use in found.timeline.devices) == pytest.approx(total)
    for use in found.timeline.devices:
        shares = [
            item.timeline.share_of_span for item in found.kernels
            if item.kernel.device == use.device and item.timeline.share_of_span is not None
        ]  # fmt: skip
        if use.span_us:
            assert sum(shares) * use.span_us == pytest.approx(use.kernel_us)


def test_overlapping_streams_count_once_as_busy() -> None:
    found = report([kernel(0, 10, "a", stream=1), kernel(5, 10, "b", stream=2)])
    assert found.timeline is not None
    (use,) = found.timeline.devices
    assert (use.span_us, use.busy_us, use.idle_us, use.kernel_us) == (15, 15, 0, 20)
    assert found.warnings == ()


def test_overlap_within_a_stream_is_told() -> None:
    found = report([kernel(0, 100, "a"), kernel(50, 100, "b")])
    assert "overlap, 50.0 us in all" in found.warnings[0]


def late(start, duration, call_end, name="k", call_us=8.0, **rest) -> GpuEvent:
    call = ApiCall("cudaLaunchKernel", call_end - call_us, call_us)
    return kernel(start, duration, name, call=call, **rest)


def test_the_cpu_is_behind_where_launches_come_late() -> None:
    found = report([late(20 * i, 5, 20 * i - 2) for i in range(10)])
    assert found.timeline is not None
    assert found.timeline.behind is Behind.CPU
    (use,) = found.timeline.devices
    assert (use.idle_us, use.gaps, use.late_us) == (9 * 15, 9, 9 * 13)
    assert found.timeline.launch_delay_us == 2


def test_the_gpu_is_behind_where_launches_wait_in_its_queue() -> None:
    found = report([late(100 * i, 98, 10 * i) for i in range(10)])
    assert found.timeline is not None
    assert found.timeline.behind is Behind.GPU


def test_idle_time_after_the_launch_is_not_the_cpus() -> None:
    found = report([late(100 * i, 50, 10 * i) for i in range(10)])
    assert found.timeline is not None
    assert found.timeline.behind is Behind.NEITHER
    assert found.timeline.devices[0].late_us == 0


def test_without_calls_nobody_is_blamed() -> None:
    found = report([kernel(100 * i, 50) for i in range(10)])
    assert found.timeline is not None
    assert found.timeline.behind is Behind.UNKNOWN
    assert found.timeline.devices[0].late_us is None


def test_clocks_that_disagree_tell_nothing_about_launches() -> None:
    found = report([late(20 * i, 5, 20 * i + 500) for i in range(10)])
    assert found.timeline is not None
    assert found.timeline.behind is Behind.UNKNOWN
    assert found.timeline.launch_delay_us is None
    assert row(found).timeline.late_us is None
    assert "clocks of CPU and GPU disagree" in found.warnings[0]


def test_a_jump_of_the_clock_is_told() -> None:
    found = report([kernel(0, 5), kernel(3e9, 5)])
    assert "a clock that jumped" in found.warnings[0]


def test_runs_name_their_ends_and_add_up() -> None:
    events = []
    for step in range(4):
        begin = 1000.0 * step
        events += [kernel(begin + 10 * i, 3, f"s{i}") for i in range(5)]
        events.append(kernel(begin + 60, 400, "big"))
    ordered = trace(events).events
    found = launch_runs(ordered, gaps_before(ordered))
    (run,) = found.runs
    assert (run.kernels, run.first, run.last, run.repeats) == (5, "s0", "s4", 4)
    assert (run.span_us, run.busy_us) == (4 * 43, 4 * 15)
    assert len(found.members) == 20


def test_two_short_kernels_are_no_run_and_a_long_pause_ends_one() -> None:
    pair = [kernel(0, 2), kernel(5, 2), kernel(10, 500), kernel(515, 2), kernel(520, 2)]
    assert launch_runs(pair, gaps_before(pair)).runs == ()
    paused = [kernel(at, 2) for at in (0, 5, 10, 1000, 1005)]
    (run,) = launch_runs(paused, gaps_before(paused)).runs
    assert run.kernels == 3


def test_kernels_as_short_as_their_gaps_are_a_run_too() -> None:
    events = [kernel(30 * i, 12) for i in range(4)]
    (run,) = launch_runs(events, gaps_before(events)).runs
    # The first has no gap before it, so that nothing says it costs its launch.
    assert (run.kernels, run.span_us, run.busy_us) == (3, 72, 36)


def test_copies_do_not_break_a_run_and_are_not_counted() -> None:
    events = [kernel(5 * i, 2) for i in range(6)]
    events[3] = kernel(15, 2, "Memset (Device)", work=GpuWork.MEMSET, bytes=64)
    (run,) = launch_runs(events, gaps_before(events)).runs
    assert (run.kernels, run.span_us) == (5, 27)
    found = report(events)
    assert found.timeline is not None
    (other,) = found.timeline.other_work
    assert (other.name, other.count, other.total_us, other.bytes) == ("Memset (Device)", 1, 2, 64)


def test_short_kernels_with_gaps_are_launch_bound_under_the_cap_of_counters() -> None:
    answer = diagnosis(report([late(20 * i, 2, 20 * i - 2) for i in range(10)]))
    assert answer.limiter is Limiter.LAUNCH_BOUND
    assert 0.5 < answer.confidence <= 0.65
    assert answer.evidence[0].metric == "gap_before_us"


def test_short_kernels_without_gaps_are_only_suspected() -> None:
    answer = diagnosis(report([kernel(2 * i, 2) for i in range(10)]))
    assert answer.limiter is Limiter.LAUNCH_BOUND
    assert answer.confidence <= 0.5


def test_long_kernels_are_unclassified_and_say_what_counters_would_add() -> None:
    answer = diagnosis(report([kernel(200 * i, 100) for i in range(10)]))
    assert answer.limiter is Limiter.UNCLASSIFIED
    assert answer.confidence == 0.2
    assert "counters say which level is busy" in answer.advice[0]


def ceilings(dram_tbs: float) -> Ceilings:
    return Ceilings(
        c_eff_bytes=40e6, t0_us=2.0, bw_l2_tbs=8.0, bw_dram_tbs=dram_tbs,
        peak_tflops={"bf16": 800.0},
    )  # fmt: skip


def mm_events(duration: float, count: int = 5) -> list[GpuEvent]:
    return [
        kernel(2 * duration * i, duration, op=MM, op_id=i, shape=LaunchShape((64, 1, 1)))
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("share", "limiter"),
    [(0.9, Limiter.DRAM_BOUND), (0.59, Limiter.UNCLASSIFIED), (1.3, Limiter.UNCLASSIFIED)],
)
def test_known_bytes_against_a_calibrated_bandwidth(share: float, limiter: Limiter) -> None:
    duration = MM_BYTES / (share * 4.0e12) * 1e6
    answer = diagnosis(report(mm_events(duration), ceilings=ceilings(4.0)))
    assert answer.limiter is limiter
    assert answer.confidence <= 0.5
    numbers = {e.metric: e.value for e in answer.evidence}
    assert numbers["compulsory_bytes"] == MM_BYTES
    assert numbers["compulsory_of_dram_pct"] == pytest.approx(100 * share)


@pytest.mark.parametrize(
    ("share", "limiter"),
    [
        (0.8, Limiter.COMPUTE_BOUND),
        (1.04, Limiter.COMPUTE_BOUND),  # by as much as calibrations and clocks differ
        (1.1, Limiter.LAUNCH_BOUND),  # more than there is: 4.2 us is what can be said
        (0.5, Limiter.LAUNCH_BOUND),  # 4.7 us, with gaps as long before them
        (3.0, Limiter.LAUNCH_BOUND),  # not to be believed: other work than the shapes say
    ],
)
def test_known_operations_against_a_calibrated_peak(share: float, limiter: Limiter) -> None:
    flops = 2 * 16 * 4096 * 14336
    duration = flops / (share * 8e14) * 1e6
    # So much bandwidth that the bytes cannot matter.
    answer = diagnosis(report(mm_events(duration), ceilings=ceilings(400.0)))
    assert answer.limiter is limiter
    (told,) = [e for e in answer.evidence if e.metric == "compulsory_of_peak_pct"]
    assert told.value == pytest.approx(100 * share)
    assert ("more than there is" in told.meaning) is (share > 1.05)
    assert ("over 100 %" in told.meaning) is (1.0 < share <= 1.05)


def test_a_long_kernel_over_the_peak_claims_nothing_from_its_operator() -> None:
    """Neither its operations nor the bytes of the same shapes, which reach 80 % of DRAM's rate."""
    duration = MM_BYTES / (0.8 * 4.0e12) * 1e6
    peak = 2 * 16 * 4096 * 14336 / duration / 1.1 / 1e6
    low = replace(ceilings(4.0), peak_tflops={"bf16": peak})
    answer = diagnosis(report(mm_events(duration), ceilings=low))
    assert (answer.limiter, answer.confidence) == (Limiter.UNCLASSIFIED, 0.2)
    fine = replace(ceilings(4.0), peak_tflops={"bf16": 2 * peak})
    assert diagnosis(report(mm_events(duration), ceilings=fine)).limiter is Limiter.DRAM_BOUND


def test_a_headroom_below_one_is_explained() -> None:
    def room(floor_us: float):
        answer = diagnosis(report(mm_events(30.0), floor=lambda *_: floor_us))
        at = next(i for i, e in enumerate(answer.evidence) if e.metric == "floor_us")
        return answer.headroom.value, answer.evidence[at], at

    value, number, at = room(33.0)
    assert (value, number.value) == (pytest.approx(30 / 33), 33.0)
    assert "faster than the calibrated one" in number.meaning
    assert at == 1  # among those that every output shows
    assert "faster" not in room(20.0)[1].meaning


def test_without_a_calibration_no_bandwidth_is_judged() -> None:
    answer = diagnosis(report(mm_events(30.0)))
    assert answer.limiter is Limiter.UNCLASSIFIED
    assert "compulsory_of_dram_pct" not in {e.metric for e in answer.evidence}


def test_headroom_over_a_floor() -> None:
    asked = []

    def floor(traffic, regime):
        asked.append((traffic.total_bytes, regime))
        return 20.0

    answer = diagnosis(report(mm_events(30.0), floor=floor))
    assert answer.headroom == Headroom(1.5, "compulsory")
    assert asked == [(MM_BYTES, Regime.IN_SITU)]
    assert diagnosis(report(mm_events(30.0), floor=lambda *_: None)).headroom is None


def test_an_op_of_several_kernels_gives_its_bytes_to_the_one_that_does_the_work() -> None:
    events = []
    for i in range(4):
        events.append(kernel(100 * i, 30, "gemm", op=MM, op_id=i))
        events.append(kernel(100 * i + 30, 3, "reduce", op=MM, op_id=i))
    found = report(events)
    assert row(found, "gemm").timeline.compulsory_bytes == MM_BYTES
    assert row(found, "reduce").timeline.compulsory_bytes is None
    assert row(found, "reduce").timeline.op == "aten::mm [16, 4096] x [4096, 14336]"


def test_launches_for_several_shapes_are_judged_by_their_sums() -> None:
    """One kernel, three launches for 117 MB in 40 us each and two for 33 MB in 10 us each."""
    small = replace(MM, dims=((16, 4096), (4096, 4096)))
    small_bytes = 2 * (16 * 4096 + 4096 * 4096 + 16 * 4096)
    events = [kernel(100 * i, 40, op=MM, op_id=i) for i in range(3)]
    events += [kernel(100 * i, 10, op=small, op_id=i) for i in range(3, 5)]
    found = report(events, ceilings=ceilings(4.0), floor=lambda t, _: t.total_bytes / 4.4e6)
    moved = (3 * MM_BYTES + 2 * small_bytes) / 5
    assert row(found).timeline.compulsory_bytes == round(moved)
    assert row(found).timeline.op.endswith(", and 1 more of other shapes")
    answer = diagnosis(found)
    numbers = {e.metric: e.value for e in answer.evidence}
    assert numbers["compulsory_of_dram_pct"] == pytest.approx(100 * moved / 28 / 4.0e6)
    assert answer.headroom.value == pytest.approx(140 / (5 * moved / 4.4e6))


def test_one_launch_of_an_unknown_operator_leaves_the_bytes_unknown() -> None:
    events = mm_events(30.0)
    events[2] = replace(events[2], op=OpCall("vllm::gemm"))
    assert row(report(events)).timeline.compulsory_bytes is None


def test_bytes_that_fit_into_l2_leave_a_doubt() -> None:
    small = replace(MM, dims=((16, 4096), (4096, 4096)))
    events = [replace(event, op=small) for event in mm_events(10.0)]
    answer = diagnosis(report(events, ceilings=ceilings(3.6)))
    assert answer.limiter is Limiter.DRAM_BOUND
    assert answer.confidence <= 0.35
    assert "they would fit" in answer.evidence[0].meaning


def test_a_grid_smaller_than_the_gpu_is_flagged() -> None:
    shape = LaunchShape((16, 1, 1), (128, 1, 1), (("grid_size", 16.0),))
    events = [kernel(200 * i, 100, shape=shape) for i in range(3)]
    answer = diagnosis(report(events, device=Device("NVIDIA H200", "9.0", 132)))
    assert answer.flags == (Flag.SMALL_GRID,)
    assert diagnosis(report(events)).flags == ()


def test_kernels_are_grouped_by_device_name_grid_and_block() -> None:
    shapes = [LaunchShape((n, 1, 1), (128, 1, 1)) for n in (1, 2)]
    events = [kernel(10 * i, 5, shape=shapes[i % 2], device=i // 4) for i in range(8)]
    found = report(events)
    assert sorted((k.kernel.device, k.kernel.grid, k.kernel.launches) for k in found.kernels) == [
        (0, (1, 1, 1), 2), (0, (2, 1, 1), 2), (1, (1, 1, 1), 2), (1, (2, 1, 1), 2),
    ]  # fmt: skip


def test_graph_replays_are_counted_and_their_kernels_have_no_delay() -> None:
    events = []
    for step in range(3):
        call = ApiCall("cudaGraphLaunch", 1000 * step - 20.0, 10.0)
        events += [kernel(1000 * step + 4 * i, 3, f"k{i}", call=call) for i in range(5)]
    found = report(events)
    assert found.timeline is not None
    assert (found.timeline.graph_launches, found.timeline.graph_kernels) == (3, 15)
    assert found.timeline.launch_delay_us is None
    assert row(found, "k1").timeline.launches_in_graph == 3
    assert found.timeline.runs[0].in_graph


def replays(gap_us: float, count: int = 3, kernels: int = 4) -> list[GpuEvent]:
    """Replays of a graph whose kernels are all short, with an idle time before each of them."""
    events, clock = [], 0.0
    for _ in range(count):
        call = ApiCall("cudaGraphLaunch", clock - 12.0, 10.0)
        clock += gap_us
        for at in range(kernels):
            events.append(kernel(clock, 3.0, f"g{at}", call=call))
            clock += 3.5
    return events


@pytest.mark.parametrize("gap", [0.5, 10.0, 100.0, 500.0])
def test_a_run_ends_with_its_replay(gap: float) -> None:
    """However short the gap between two replays is: they are two launches."""
    found = report(replays(gap))
    assert found.timeline is not None
    (run,) = found.timeline.runs
    assert (run.kernels, run.first, run.last, run.repeats) == (4, "g0", "g3", 3)
    assert run.span_us == pytest.approx(3 * (4 * 3.5 - 0.5))
    assert run.busy_us == pytest.approx(3 * 4 * 3.0)


def test_the_gap_before_a_replay_is_not_its_first_kernels() -> None:
    long = [replace(e, duration_us=3.0 if e.name != "g0" else 12.0) for e in replays(100.0)]
    shifted = [replace(e, start_us=e.start_us + (9.0 if e.name != "g0" else 0)) for e in long]
    found = report(shifted)
    assert row(found, "g0").timeline.gap_before_us is None
    assert row(found, "g1").timeline.gap_before_us == pytest.approx(0.5)
    assert diagnosis(found, "g0").limiter is Limiter.UNCLASSIFIED
    assert found.timeline.devices[0].idle_us > 180  # the GPU idles there all the same


def test_a_run_ends_where_a_replay_begins_and_where_it_ends() -> None:
    eager = [kernel(5.0 * i, 3.0, f"e{i}") for i in range(3)]
    inside = [replace(e, start_us=e.start_us + 16.0) for e in replays(0.0, count=1)]
    after = [kernel(32.0 + 5.0 * i, 3.0, f"f{i}") for i in range(3)]
    found = report([*eager, *inside, *after])
    assert sorted((r.first, r.last, r.in_graph) for r in found.timeline.runs) == [
        ("e0", "e2", False), ("f0", "f2", False), ("g0", "g3", True),
    ]  # fmt: skip


def test_advice_for_kernels_of_a_graph_is_what_is_left() -> None:
    (inside,) = diagnosis(report(replays(5.0)), "g1").advice
    assert "fuse it" in inside
    assert "capture" not in inside
    (outside,) = diagnosis(report([kernel(10.0 * i, 3.0) for i in range(4)])).advice
    assert "capture the run in a CUDA graph" in outside
    both = [*replays(5.0), *(kernel(1000 + 10.0 * i, 3.0, "g1") for i in range(4))]
    (mixed,) = diagnosis(report(both), "g1").advice
    assert "capture the 4 of its 7 launches" in mixed


def test_kernels_of_a_graph_say_why_nothing_is_estimated() -> None:
    assert (
        "12 of 12 kernel launches are replayed by CUDA graphs" in report(replays(5.0)).warnings[0]
    )
    assert report(mm_events(30.0)).warnings == ()


def test_gaps_of_nothing_are_no_evidence() -> None:
    metrics = {
        e.metric for e in diagnosis(report([kernel(2.0 * i, 2.0) for i in range(9)])).evidence
    }
    assert not metrics & {"gap_before_us", "gap_late_pct"}
    queued = [late(10.0 * i, 2.0, i) for i in range(9)]
    metrics = {e.metric for e in diagnosis(report(queued)).evidence}
    assert "gap_before_us" in metrics
    assert "gap_late_pct" not in metrics


def test_near_the_fixed_cost_is_what_the_calibration_says() -> None:
    events = [kernel(5.0 * i, 5.0) for i in range(9)]
    typical = diagnosis(report(events))
    assert typical.limiter is Limiter.UNCLASSIFIED
    assert "a typical value: this GPU's is not known" in typical.evidence[0].meaning
    slow = report_timeline(trace(events), fixed=FixedCost.of(2.3))
    answer = diagnosis(slow)
    assert answer.limiter is Limiter.LAUNCH_BOUND
    assert answer.evidence[0].threshold == pytest.approx(2.3 + 3.6)
    assert "2.30 us by the calibration's t0" in answer.evidence[0].meaning
    assert slow.timeline.runs[0].kernels == 9


def test_an_event_of_no_duration_alone() -> None:
    found = report([kernel(5, 0)])
    assert found.timeline is not None
    assert (found.timeline.span_us, row(found).share_of_time) == (0, None)
