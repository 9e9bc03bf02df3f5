"""Traces of a server's own profiler as captured steps."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from kineto_files import TraceBuilder

from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.analysis.step_shares import kernel_us, step_rows, workloads_of
from kernel_compass.api.step_capturing import capture_trace, report_of
from kernel_compass.codec.step_capture_document import decode, packed
from kernel_compass.errors import NotATimeline
from kernel_compass.profiling.kineto import read_traces

KINETO = Path(__file__).parents[1] / "golden" / "kineto"


def test_a_trace_of_an_eager_decoder_block() -> None:
    path = KINETO / "decoder_block_decode_eager.json.gz"
    (found,) = capture_trace(path)
    (trace,) = read_traces(path)
    assert found.environment.device.name == "NVIDIA H200"
    assert (found.steps, found.step) == (5, "ProfilerStep")
    total = sum(event.duration_us for event in trace.events)
    assert kernel_us(found) == pytest.approx(total / 5)
    launches = sum(kernel.launches for kernel in found.kernels)
    assert launches == pytest.approx(len(trace.events) / 5)
    shapes = {one.shape_text for one in workloads_of(found).values()}
    assert shapes == {
        "linear 16x4096x4096",
        "linear 16x1024x4096",
        "linear 16x14336x4096",
        "linear 16x4096x14336",
    }
    assert all(row.headroom is None or row.headroom > 0.98 for row in step_rows(found))
    groups = groups_of(found)
    assert groups
    assert all(group.saves_at_most_us <= group.time_us + group.gap_us for group in groups)
    assert sum(group.saves_at_most_us for group in groups) < (found.step_us or 0.0)
    assert decode(packed(found)) == found
    assert "no source lines" in report_of(found)


def test_a_trace_of_a_graph_names_no_operators() -> None:
    (found,) = capture_trace(KINETO / "decoder_block_decode_graph.json.gz")
    assert found.in_graph
    assert any("of CUDA graphs" in note for note in found.notes)
    assert decode(packed(found)) == found
    assert groups_of(found)


def test_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("{}")
    with pytest.raises(NotATimeline):
        capture_trace(file)


def counted(path: Path) -> tuple[int, float, float, float]:
    """Steps, GPU time, length and idle time of one, from the file's events alone."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    whole = [one for one in events if one.get("ph") == "X"]
    marks = sorted(
        (one["ts"], one["ts"] + one["dur"])
        for one in whole
        if one["cat"] == "user_annotation" and one["name"].startswith("ProfilerStep")
    )
    calls = {
        one["args"]["correlation"]: one["ts"]
        for one in whole
        if one["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in one.get("args", {})
    }
    steps: list[list[tuple[float, float]]] = [[] for _ in marks]
    for one in whole:
        if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            launched = calls[one["args"]["correlation"]]
            for at, (begin, end) in enumerate(marks):
                if begin <= launched <= end:
                    steps[at].append((one["ts"], one["ts"] + one["dur"]))
    borders = [min(step)[0] for step in steps]
    lengths = [after - before for before, after in pairwise(borders)]
    idle = []
    for step, length, begin in zip(steps, lengths, borders, strict=False):
        free, end = 0.0, begin
        for start, stop in sorted(step):
            free, end = free + max(start - end, 0.0), max(end, stop)
        idle.append(free + begin + length - end)
    times = [stop - start for step in steps for start, stop in step]
    return len(steps), sum(times) / len(steps), fmean(lengths), fmean(idle)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_steps_are_cut_where_an_independent_count_cuts_them(phase: str, mode: str) -> None:
    path = KINETO / f"decoder_block_{phase}_{mode}.json.gz"
    (found,) = capture_trace(path)
    steps, kernels, length, idle = counted(path)
    assert found.steps == steps
    # times in the file are large numbers: their differences are known to a hundredth
    assert kernel_us(found) == pytest.approx(kernels, abs=0.01)
    assert found.step_us == pytest.approx(length, abs=0.01)
    assert found.idle_us == pytest.approx(idle, abs=0.01)
    assert kernel_us(found) + (found.idle_us or 0.0) == pytest.approx(length, rel=0.01)


def server(kernel_us: float, pid: int = 1, device: int = 0) -> TraceBuilder:
    """As vLLM is recorded, its CPU ahead of the GPU: what was launched before recording began, one
    iteration with a prompt, four that decode, and sampling behind each."""
    trace = TraceBuilder(pid=pid)
    trace.correlation = 100 + 1000 * pid
    free = 0.0

    def work(call: float, duration: float, name: str) -> None:
        nonlocal free
        start = max(call + 5.0, free)
        trace.launch(call, start, duration, name, device=device)
        free = start + duration

    work(1.0, 500.0, "warm_up")
    clock = 100.0
    for at in range(5):
        name = (
            "execute_context_1(512)_generation_0(0)"
            if at == 1
            else ("execute_context_0(0)_generation_16(16)")
        )
        trace.add("user_annotation", f"ProfilerStep#{at}", clock - 10.0, 190.0)
        trace.add("user_annotation", name, clock, 100.0)
        trace.add("gpu_user_annotation", name, free, 100.0, pid=device, tid=7)
        work(clock + 10.0, 5000.0 if at == 1 else kernel_us, "attention")
        work(clock + 150.0, 20.0, "sample")
        clock += 200.0
        free += 30.0  # nothing for the GPU to do
    return trace


def test_a_servers_iterations_that_decode_are_not_averaged_with_a_prompts(tmp_path: Path) -> None:
    (found,) = capture_trace(server(300.0).write(tmp_path / "trace.json"))
    assert found.step == "a server's iteration without new prompts" and found.steps == 4
    times = {one.name: one.time_us for one in found.kernels}
    assert sum(one.time_us for one in found.kernels if one.name == "attention") == 300.0
    assert "warm_up" not in times
    assert kernel_us(found) == pytest.approx(320.0)
    assert (found.step_us, found.idle_us) == (pytest.approx(350.0), pytest.approx(30.0))
    said = "; ".join(found.notes)
    assert "1 of 11 GPU events lie in no step" in said
    assert "1 steps of another sort are left out" in said


def test_ranks_that_were_joined_have_steps_of_their_own(tmp_path: Path) -> None:
    one, other = server(300.0, pid=1, device=0), server(400.0, pid=2, device=1)
    one.events += other.events
    found = capture_trace(one.write(tmp_path / "trace.json"))
    assert [capture.steps for capture in found] == [4, 4]
    assert [kernel_us(capture) for capture in found] == [320.0, 420.0]
    assert [capture.step_us for capture in found] == [pytest.approx(350.0), pytest.approx(450.0)]


def test_steps_that_differ_are_said_to(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for at, duration in enumerate((100.0, 100.0, 300.0)):
        trace.add("user_annotation", f"ProfilerStep#{at}", 1000.0 * at, 900.0)
        trace.launch(1000.0 * at + 10.0, 1000.0 * at + 20.0, duration)
    (found,) = capture_trace(trace.write(tmp_path / "trace.json"))
    assert found.steps == 3 and found.step_us == pytest.approx(1000.0)
    assert any("its steps differ: their GPU work takes 100 us to 300 us" in n for n in found.notes)
