"""Traces that say what cannot be: missing times, impossible sizes, nesting without end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kineto_files import TraceBuilder, eager_steps

from kernel_compass.analysis.op_traffic import traffic_of
from kernel_compass.analysis.timeline_report import report_timeline
from kernel_compass.errors import AmbiguousCapture, CaptureError, DamagedCapture, NotATimeline
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.records.trace import OpCall, Trace

DEEP = 5000
NESTED = "[" * DEEP + "]" * DEEP
HUGE = ["1e400", "1e999999999", "9" * 5000, "1e17", "-1e17", '"1e9999999999999999999"', '""', "{}"]


def read(path: Path, text: str) -> Trace:
    path.write_text(text)
    (trace,) = read_traces(path)
    return trace


def changed(trace: TraceBuilder, name: str, **fields: Any) -> TraceBuilder:
    """The events of this name with other fields; `...` takes one out."""
    for event in trace.events:
        if event["name"] == name:
            event.update(fields)
            for key in [key for key, value in fields.items() if value is ...]:
                del event[key]
    return trace


@pytest.mark.parametrize("field", ["ts", "dur"])
def test_a_missing_time_of_a_gpu_event_is_not_zero(tmp_path: Path, field: str) -> None:
    trace = changed(eager_steps(), "gemm", **{field: ...})
    with pytest.raises(DamagedCapture, match=r"'gemm'.*missing"):
        read(tmp_path / "t.json", json.dumps(trace.document()))
    with pytest.raises(DamagedCapture, match="missing"):
        read(tmp_path / "t.json", '{"traceEvents":[{"ph":"X","cat":"kernel"}]}')


@pytest.mark.parametrize("bad", [{"dur": ...}, {"ts": ...}, {"dur": -5.0}, {"dur": None}])
def test_cpu_events_without_a_time_are_left_out_and_counted(tmp_path: Path, bad: dict) -> None:
    trace = eager_steps()
    for name in ("cudaLaunchKernel", "aten::mm", "ProfilerStep#1"):
        changed(trace, name, **bad)
    trace.add("overhead", "CUPTI", 0, 0)
    changed(trace, "CUPTI", **bad)
    found = read(tmp_path / "t.json", json.dumps(trace.document()))
    assert found.calls == {}
    assert len(found.steps_us) == 2
    assert all(step > 0 for step in found.steps_us)
    assert found.overhead_us == 0
    (note,) = [text for text in found.warnings if "left out" in text]
    for words in ("18 calls", "3 operators", "1 steps", "1 overheads"):
        assert f"{words} without a credible time" in note


def test_an_end_before_its_begin_or_without_a_time_is_refused(tmp_path: Path) -> None:
    for end in ({"ts": 3}, {}):
        events = [
            {"ph": "B", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5},
            {"ph": "E", "pid": 0, "tid": 7, **end},
        ]
        with pytest.raises(DamagedCapture, match="'k'"):
            read(tmp_path / "t.json", json.dumps(events))


@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("number", HUGE)
def test_times_over_64_bits_are_refused(tmp_path: Path, field: str, number: str) -> None:
    text = json.dumps(changed(eager_steps(), "gemm", **{field: "@"}).document())
    with pytest.raises(DamagedCapture):
        read(tmp_path / "t.json", text.replace('"@"', number))


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ({"grid": [-1, 2, 10**30]}, "grids"),
        ({"grid": [0, 1, 1]}, "grids"),
        ({"block": [1024, 1024, 1]}, "blocks"),
        ({"shared memory": 10**400, "registers per thread": -5}, "2 launch figures"),
        ({"est. achieved occupancy %": 1e9}, "1 launch figures"),
        ({"device": -1}, "1 GPU numbers"),
    ],
)
def test_what_no_gpu_launches_is_missing(tmp_path: Path, args: dict, what: str) -> None:
    trace = TraceBuilder()
    trace.kernel(0, 5)["args"].update(args)
    found = read(tmp_path / "t.json", json.dumps(trace.document()))
    assert any(what in text for text in found.warnings)
    report = report_timeline(found)
    shape = found.events[0].shape
    assert all(0 <= value < 2**63 for _, value in shape.metrics)
    assert all(size > 0 for size in (*(shape.grid or ()), *(shape.block or ())))
    assert report.kernels[0].kernel.device == 0


@pytest.mark.parametrize("size", [-4, 10**400, 10**40])
def test_a_copy_of_an_impossible_size_has_none(tmp_path: Path, size: int) -> None:
    trace = TraceBuilder()
    trace.copy(0, 5, 64)
    text = json.dumps(trace.document()).replace('"bytes": 64', f'"bytes": {size}')
    found = read(tmp_path / "t.json", text)
    assert found.events[0].bytes is None
    assert any("sizes of copies" in text for text in found.warnings)


def test_headers_that_cannot_be_are_not_taken_over(tmp_path: Path) -> None:
    gpu = {"id": 0, "name": "G", "numSms": -1, "computeMajor": 10**15, "computeMinor": 0}
    for ranks in ((-5, -1), (9, 2), (10**15, 2)):
        header = {
            "deviceProperties": [gpu],
            "distributedInfo": dict(zip(("rank", "world_size"), ranks, strict=True)),
        }
        found = read(tmp_path / "t.json", json.dumps(eager_steps().document(**header)))
        assert found.device is not None
        assert (found.device.sm_count, found.device.compute_capability) == (None, None)
        assert found.rank is None


def test_a_kernel_that_starts_before_its_call_returns_has_no_negative_delay(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for at in range(3):
        trace.launch(100 * at, 100 * at + 2, 10)  # the call takes 3 us
    report = report_timeline(read(tmp_path / "t.json", json.dumps(trace.document())))
    assert report.timeline is not None
    assert report.timeline.launch_delay_us == 0
    seen = report.kernels[0].timeline
    assert seen is not None
    assert seen.launch_delay_us == 0


@pytest.mark.parametrize(
    "dims",
    [
        [[-1, 4096], [4096, 4096]],
        [[10**200, 10**200], [10**200, 10**200]],
        [[2**62, 2**62], [2**62, 2**62]],
        [[True, 4096], [4096, 4096]],
    ],
)
def test_sizes_of_no_tensor_give_no_estimate(tmp_path: Path, dims: list) -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 9, dims, ["float", "float"])
    trace.kernel(20, 5, correlation=trace.call(1, external=op))
    report = report_timeline(read(tmp_path / "t.json", json.dumps(trace.document())))
    seen = report.kernels[0].timeline
    assert seen is not None
    assert (seen.compulsory_bytes, seen.flops) == (None, None)


def test_negative_sizes_have_no_traffic() -> None:
    assert traffic_of(OpCall("aten::mm", ((-1, 8), (8, 8)), ("float", "float"))) is None
    assert traffic_of(OpCall("aten::mm", ((1, 8), (8, 8)), ("float", "float"))) is not None


K = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":0,"dur":1,"args":{%s}}'
OP = '{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":0,"dur":1,"args":{"Input Dims":%s}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents":[{"ph":"X","args":' + NESTED + "}]}",
        "[" + NESTED + "]",
        '{"traceEvents":[' + K % f'"grid":{NESTED}' + "]}",
        '{"traceEvents":[' + K % "" + "," + OP % NESTED + "]}",
        '{"traceEvents":[' + K % "" + "," + OP % f'"{NESTED}"' + "]}",
        '{"x":' + NESTED + ',"traceEvents":[' + K % "" + "]}",
        '{"traceEvents":[' + K % "" + '],"x":' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
        '{"x":' + NESTED + "}",
        '{"traceEvents":' + "[" * 20000,
    ],
)
def test_values_nested_without_end_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(CaptureError) as caught:
        read_traces(path)
    assert caught.value.remedy


def test_a_second_array_of_events_is_refused(tmp_path: Path) -> None:
    events = '"traceEvents":[' + K % "" + "]"
    for second in (events, '"traceEvents":[]', '"traceEvents":null'):
        with pytest.raises(AmbiguousCapture, match="twice"):
            read(tmp_path / "t.json", "{" + events + ',"a":{"traceEvents":[]},' + second + "}")
    inner = "{" + events + ',"a":{"traceEvents":[]}}'
    assert len(read(tmp_path / "t.json", inner).events) == 1


@pytest.mark.parametrize("value", ["null", "{}", '"x"'])
def test_trace_events_that_are_no_array_are_named(tmp_path: Path, value: str) -> None:
    with pytest.raises(NotATimeline, match=f"'traceEvents' is no array; it begins with {value}"):
        read(tmp_path / "t.json", '{"traceEvents":' + value + "}")


def test_text_behind_the_end_is_not_a_cut_file(tmp_path: Path) -> None:
    whole = json.dumps(eager_steps().document())
    for rest in ("garbage", whole, "}"):
        with pytest.raises(DamagedCapture, match="text follows") as caught:
            read(tmp_path / "t.json", whole + rest)
        assert "cut off" not in caught.value.found
    with pytest.raises(DamagedCapture, match="cut off"):
        read(tmp_path / "t.json", whole[:-1])
