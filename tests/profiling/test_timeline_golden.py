"""Real traces of torch.profiler: every total against a few lines that read the JSON alone."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from kernel_compass import api
from kernel_compass.api import diagnose_profiles, diagnose_timeline
from kernel_compass.codec import calibration_json
from kernel_compass.profiling.recorded import recorded_profiles
from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.records.timeline import Behind
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "kineto"
TRACES = sorted(FOLDER.glob("*.json.gz"))
PREFILL = FOLDER / "decoder_block_prefill_eager.json.gz"
WORK = ("kernel", "gpu_memcpy", "gpu_memset")

pytestmark = pytest.mark.skipif(not TRACES, reason=f"no recorded traces in {FOLDER}")


def gpu_events(path: Path) -> list[dict]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [e for e in events if e.get("cat") in WORK]


def union_us(events: list[dict]) -> float:
    """Time in which at least one of the events runs."""
    marks = sorted((t, d) for e in events for t, d in ((e["ts"], 1), (e["ts"] + e["dur"], -1)))
    busy, depth, last = 0.0, 0, 0.0
    for time, delta in marks:
        busy += (time - last) if depth else 0.0
        depth, last = depth + delta, time
    return busy


@pytest.fixture(params=TRACES, ids=lambda path: path.name.removesuffix(".json.gz"))
def recorded(request: pytest.FixtureRequest) -> tuple[list[dict], Report]:
    (report,) = diagnose_timeline(request.param)
    return gpu_events(request.param), report


def test_kernels_and_their_times(recorded: tuple[list[dict], Report]) -> None:
    events, report = recorded
    expected: dict[tuple, list[float]] = defaultdict(list)
    for event in events:
        if event["cat"] == "kernel":
            args = event["args"]
            key = (event["name"], tuple(args["grid"]), tuple(args["block"]), args["device"])
            expected[key].append(event["dur"])
    found = {
        (k.kernel.name, k.kernel.grid, k.kernel.block, k.kernel.device): k for k in report.kernels
    }
    assert found.keys() == expected.keys()
    for key, times in expected.items():
        assert found[key].kernel.launches == len(times)
        assert found[key].kernel.duration_us == pytest.approx(sum(times))


def test_spans_and_gaps(recorded: tuple[list[dict], Report]) -> None:
    events, report = recorded
    assert report.timeline is not None
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for event in events:
        groups["device", event["args"]["device"]].append(event)
        groups["stream", event["args"]["device"], event["args"]["stream"]].append(event)
    uses = {
        ("device", u.device): (u.span_us, u.busy_us, u.idle_us) for u in report.timeline.devices
    }
    uses |= {
        ("stream", u.device, u.stream): (u.span_us, u.busy_us, u.gaps_us)
        for u in report.timeline.streams
    }
    assert uses.keys() == groups.keys()
    for key, members in groups.items():
        span = max(e["ts"] + e["dur"] for e in members) - min(e["ts"] for e in members)
        # Times since an epoch lose up to a nanosecond each in the floats of this test.
        slack = 0.002 * len(members)
        wanted = (span, union_us(members), span - union_us(members))
        assert uses[key] == pytest.approx(wanted, abs=slack)


def test_every_kernel_is_linked_with_its_launch(recorded: tuple[list[dict], Report]) -> None:
    events, report = recorded
    assert not [w for w in report.warnings if "no call that launched" in w or "clocks" in w]
    assert report.timeline is not None
    assert report.timeline.steps == 5
    in_graph = sum(item.timeline.launches_in_graph for item in report.kernels if item.timeline)
    kernels = sum(event["cat"] == "kernel" for event in events)
    is_graph = any("cudaGraphLaunch" in use.name for use in report.timeline.calls)
    assert (in_graph > 0.9 * kernels) is is_graph


def named(report: Report, prefix: str, grid: tuple[int, int, int]) -> ReportKernel:
    return next(
        k for k in report.kernels if k.kernel.name.startswith(prefix) and k.kernel.grid == grid
    )


def test_operators_of_the_eager_decode_move_what_their_shapes_say() -> None:
    (report,) = diagnose_timeline(FOLDER / "decoder_block_decode_eager.json.gz")
    feed_forward = named(report, "nvjet_sm90_tst_64x16_64x16_2x1_v_bz_TNT", (2, 66, 1))
    assert feed_forward.timeline is not None
    assert feed_forward.timeline.compulsory_bytes == 2 * (16 * 4096 + 4096 * 14336 + 16 * 14336)
    attention = named(report, "cudnn", (1, 8, 16))
    assert attention.timeline is not None
    queries = 16 * 32 * 128
    assert attention.timeline.compulsory_bytes == 2 * (2 * queries + 2 * 16 * 8 * 4096 * 128)
    assert attention.timeline.flops == 4 * 16 * 32 * 4096 * 128


def test_estimates_agree_with_counters_of_the_same_kernels() -> None:
    """A capture of such a block under ncu is shipped; its long kernels are the same ones."""
    counters = diagnose_profiles(recorded_profiles("decode_block"))
    (timeline,) = diagnose_timeline(FOLDER / "decoder_block_decode_eager.json.gz")
    limiters = {
        (k.kernel.name, k.kernel.grid): k.kernel.diagnosis.limiter
        for k in counters.kernels
        if k.kernel.diagnosis
    }
    compared = {}
    for item in timeline.kernels:
        mine = item.kernel.diagnosis
        theirs = limiters.get((item.kernel.name, item.kernel.grid))
        if theirs is not None and mine is not None:
            compared[item.kernel.name, item.kernel.grid] = (mine, theirs)
    long = [pair for (name, _), pair in compared.items() if "nvjet" in name or "cudnn" in name]
    assert len(long) == 5
    agreeing = [mine for mine, theirs in long if mine.limiter is theirs]
    assert [mine.limiter for mine in agreeing] == [Limiter.DRAM_BOUND] * 3
    # The other two are short products: ncu's replay left their weights in L2, and the program's
    # launches wait for the CPU. What the timeline says of them it says with little confidence.
    assert all(mine.confidence <= 0.5 for mine, theirs in long if mine.limiter is not theirs)


def test_the_graph_removes_the_gaps_and_not_the_short_kernels() -> None:
    eager, graph = (
        diagnose_timeline(FOLDER / f"decoder_block_decode_{mode}.json.gz")[0]
        for mode in ("eager", "graph")
    )
    assert eager.timeline is not None
    assert graph.timeline is not None
    assert eager.timeline.behind is Behind.CPU
    (slow,), (fast,) = eager.timeline.devices, graph.timeline.devices
    assert fast.busy_us == pytest.approx(slow.busy_us, rel=0.05)
    assert fast.idle_us < 0.15 * slow.idle_us
    assert graph.timeline.graph_launches == 5
    assert all(run.in_graph for run in graph.timeline.runs)


def test_the_large_products_of_the_prefill_are_compute_bound() -> None:
    """One kernel for three shapes: judged by the sum of their operations over its time."""
    (report,) = diagnose_timeline(PREFILL)
    first = report.kernels[0]
    assert first.kernel.name.startswith("nvjet_sm90_tst_256x128")
    # Queries and outputs [2048, 4096] x [4096, 4096] and three of the feed-forward, a step each.
    flops = 2 * 2048 * 4096 * (2 * 4096 + 3 * 14336) / 5
    assert first.timeline is not None
    assert first.timeline.flops == pytest.approx(flops)
    answer = first.kernel.diagnosis
    assert answer is not None
    assert answer.limiter is Limiter.COMPUTE_BOUND
    shipped = api.shipped_calibration("NVIDIA H200")
    assert shipped is not None
    floor_us = shipped.t0_graph_us.value + flops / shipped.peak_tflops["bf16"].value / 1e6
    name = first.kernel.name
    times = [e["dur"] for e in gpu_events(PREFILL) if e["name"] == name]
    assert answer.headroom is not None
    assert answer.headroom.value == pytest.approx(mean(times) / floor_us)
    # The shipped peak is one that cuBLAS reaches: not so low that the kernel beats it.
    assert answer.headroom.value == pytest.approx(1.02, abs=0.02)
    assert not [e for e in answer.evidence if "too low" in e.meaning or "over 100 %" in e.meaning]


@pytest.mark.parametrize(
    ("peak", "limiter"), [(803.0, Limiter.COMPUTE_BOUND), (703.0, Limiter.UNCLASSIFIED)]
)
def test_large_products_against_a_peak_that_can_be_and_one_that_cannot(
    peak: float, limiter: Limiter, tmp_path: Path
) -> None:
    shipped = api.shipped_calibration("NVIDIA H200")
    assert shipped is not None
    measured = replace(shipped.peak_tflops["bf16"], value=peak, low=None, high=None)
    file = tmp_path / "h200.json"
    own = replace(shipped, peak_tflops={**shipped.peak_tflops, "bf16": measured})
    file.write_bytes(calibration_json.encode(own))
    (report,) = diagnose_timeline(PREFILL, calibration=str(file))
    answer = report.kernels[0].kernel.diagnosis
    assert answer is not None
    assert answer.limiter is limiter
    told = {e.metric: e for e in answer.evidence}
    assert told["compulsory_of_peak_pct"].value == pytest.approx(110.3 * 703 / peak, rel=0.01)
    assert ("more than there is" in told["compulsory_of_peak_pct"].meaning) is (peak < 800)
    assert answer.headroom is not None
    assert (answer.headroom.value < 0.98) is ("faster" in told["floor_us"].meaning)


def test_runs_of_the_graph_stay_within_a_replay() -> None:
    """Four short kernels end each of five replays, or begin it; never both in one run."""
    path = FOLDER / "decoder_block_decode_graph.json.gz"
    (report,) = diagnose_timeline(path)
    assert report.timeline is not None
    by_replay: dict[int, list[dict]] = defaultdict(list)
    for event in gpu_events(path):
        by_replay[event["args"]["correlation"]].append(event)
    orders = {tuple(e["name"] for e in events) for events in by_replay.values()}
    assert len(by_replay) == 5
    (order,) = orders
    for run in report.timeline.runs:
        assert run.repeats % 5 == 0
        names = [
            order[at : at + run.kernels]
            for at in range(len(order) - run.kernels + 1)
            if (order[at], order[at + run.kernels - 1]) == (run.first, run.last)
        ]
        assert names, run
        assert run.span_us < 1.5 * run.busy_us  # gaps between replays are 90 us and more


def test_the_graph_is_not_advised_to_become_one() -> None:
    (report,) = diagnose_timeline(FOLDER / "decoder_block_decode_graph.json.gz")
    for format in (Format.TERMINAL, Format.MARKDOWN):
        text = " ".join(render(report, format, width=400).replace("\\", "").split())
        assert "capture" not in text
        assert "fuse them (they run in CUDA graphs already)" in text


def test_a_cpu_that_is_ahead_says_how_much_the_gpu_idles() -> None:
    (report,) = diagnose_timeline(FOLDER / "decoder_block_prefill_graph.json.gz")
    text = " ".join(render(report, Format.TERMINAL, width=400).split())
    assert "CPU mostly ahead: the GPU idles 9.3 % of the span; 799 us of 933 us idle (86 %)" in text
    assert "hardly ever" not in text
