"""Traces of a step joined to its operators, and what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kineto_files import THREAD, TraceBuilder

from kernel_compass.analysis.step_join import joined, place_of
from kernel_compass.analysis.step_shares import joined_share, step_rows
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_capture import (
    RegionKind,
    SourceLine,
    StepCapture,
    StepOp,
    StepRegion,
    StepTensor,
)
from kernel_compass.records.trace import Trace

LINES = [SourceLine("m.py", n, "forward") for n in (1, 2, 3)]


def tensor(*shape: int) -> StepTensor:
    return StepTensor(shape, (), "bfloat16", "cuda", 0)


CAPTURE = StepCapture(
    program="m.py",
    step="M.forward",
    environment=Environment(Device()),
    ops=(
        StepOp(0, "aten::mm", (tensor(16, 64), tensor(64, 32)), (tensor(16, 32),), line=LINES[0]),
        StepOp(1, "aten::silu", (tensor(16, 32),), (tensor(16, 32),), line=LINES[1], module="act"),
    ),
    regions=(StepRegion(0, RegionKind.COMPILED, "norm", LINES[2]),),
    step_us=60.0,
    steps=3,
)
MM = {"dims": [[16, 64], [64, 32]], "types": ["c10::BFloat16", "c10::BFloat16"]}


def mark(trace: TraceBuilder, name: str, start: float, end: float, thread: int = THREAD) -> None:
    trace.add("user_annotation", name, start, end - start, tid=thread)


def times(tmp_path: Path, kernels: tuple[str, ...] = ("gemm", "silu", "fused")) -> Trace:
    """Three steps of three kernels: 20, 2 and 4 us with 5 us of idle time before the later two,
    the second step longer by half."""
    trace = TraceBuilder()
    for step in range(3):
        at, slow = 1000.0 * step, 1.5 if step == 1 else 1.0
        mark(trace, f"kc:{step}:", at, at + 100)
        start = at + 20
        for number, (name, time) in enumerate(zip(kernels, (20.0, 2.0, 4.0), strict=True)):
            trace.launch(at + 5 + 10 * number, start, time * slow, name)
            start += time * slow + 5
    return read_one(trace, tmp_path / "times.json")


def marks(tmp_path: Path, kernels: tuple[str, ...] = ("gemm", "silu", "fused")) -> Trace:
    trace = TraceBuilder()
    mark(trace, "kc:0:", 0, 100)
    external = trace.op("aten::mm", 11, 8, **MM)
    for number, (name, place) in enumerate(zip(kernels, ("o0", "o1", "r0"), strict=True)):
        at = 10.0 + 20 * number
        mark(trace, f"kc:0:{place}", at, at + 10)
        correlation = trace.call(at + 2, external=external if number == 0 else 0)
        trace.kernel(
            at + 15, 5, name, correlation, **{"External id": external if not number else 0}
        )
    return read_one(trace, tmp_path / "marks.json")


def read_one(trace: TraceBuilder, path: Path) -> Trace:
    (found,) = read_traces(trace.write(path))
    return found


def test_every_kernel_has_its_place_and_its_median_time(tmp_path: Path) -> None:
    found = joined(CAPTURE, times(tmp_path), marks(tmp_path), lambda *_: 4.0, lambda e: e.name)
    gemm, silu, fused = found.kernels
    assert [k.line for k in found.kernels] == LINES
    assert (gemm.op, silu.op, fused.op, fused.region) == (0, 1, None, 0)
    assert [k.time_us for k in found.kernels] == [20.0, 2.0, 4.0]
    assert [k.limiter for k in found.kernels] == ["gemm", "silu", "fused"]
    assert [k.floor_us for k in found.kernels] == [4.0, None, None]
    # A step takes 60 us, of which kernels take 26; the gaps of the trace were 10 us.
    assert found.idle_us == pytest.approx(34.0)
    assert [k.gap_us for k in found.kernels] == pytest.approx([0.0, 5.0, 5.0])
    assert joined_share(found) == 1.0
    assert [row.op for row in step_rows(found)] == ["aten::mm", "compiled norm", "aten::silu"]
    assert step_rows(found)[0].headroom == pytest.approx(5.0)


def test_gaps_that_the_profiler_widened_add_up_to_the_idle_time(tmp_path: Path) -> None:
    found = joined(replace(CAPTURE, step_us=30.0), times(tmp_path), marks(tmp_path))
    assert found.idle_us == pytest.approx(4.0)
    assert sum(k.gap_us or 0.0 for k in found.kernels) == pytest.approx(4.0)


def test_a_kernel_that_the_marked_step_lacks_has_no_place(tmp_path: Path) -> None:
    other = marks(tmp_path, ("gemm", "another", "fused"))
    found = joined(CAPTURE, times(tmp_path), other)
    gemm, silu, fused = found.kernels
    assert (gemm.op, fused.region) == (0, 0)
    assert (silu.op, silu.line) == (None, None)
    assert any("7.7 % of the kernels' time" in note for note in found.notes)


def test_a_step_that_ran_something_else_is_left_out(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for step, names in enumerate((("a", "b"), ("a",), ("a", "b"))):
        at = 100.0 * step
        mark(trace, f"kc:{step}:", at, at + 50)
        for number, name in enumerate(names):
            trace.launch(
                at + 5 + number, at + 10 + 10 * number, 7.0 if len(names) == 1 else 3.0, name
            )
    found = joined(CAPTURE, read_one(trace, tmp_path / "t.json"), marks(tmp_path))
    assert [(k.name, k.time_us) for k in found.kernels] == [("a", 3.0), ("b", 3.0)]


def test_a_thread_without_ranges_belongs_to_the_step_that_runs(tmp_path: Path) -> None:
    """Autograd launches from a thread of its own."""
    trace = TraceBuilder()
    mark(trace, "kc:0:", 0, 100)
    mark(trace, "kc:0:o1", 10, 20)
    trace.launch(12, 13, 2, "inside")
    event = trace.events[-2]
    assert event["cat"] == "cuda_runtime"
    trace.launch(40, 45, 2, "other")
    trace.events[-2]["tid"] = THREAD + 1
    trace.launch(200, 205, 2, "after")
    events = read_one(trace, tmp_path / "t.json").events
    assert [(e.name, e.mark) for e in events] == [
        ("inside", "kc:0:o1"),
        ("other", "kc:0:"),
        ("after", None),
    ]


def test_ranges_of_others_are_no_marks(tmp_path: Path) -> None:
    trace = TraceBuilder()
    mark(trace, "forward", 0, 100)
    trace.launch(12, 13, 2)
    assert read_one(trace, tmp_path / "t.json").events[0].mark is None


@pytest.mark.parametrize("text", [None, "kc:0:", "kc:0:x3", "kc:0:o", "kc:0:o-1"])
def test_marks_that_name_nothing(text: str | None) -> None:
    place = place_of(text)
    assert (place.op, place.launch, place.region) == (None, None, None)


def test_a_trace_without_steps_is_said_to_be_empty(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.launch(0, 1, 2)
    found = joined(CAPTURE, read_one(trace, tmp_path / "t.json"), marks(tmp_path))
    assert found.kernels == ()
    assert "holds no kernels" in found.notes[-1]
