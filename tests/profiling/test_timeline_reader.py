"""Kineto traces: the forms they come in, what is linked with what, and what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_files import PID, TraceBuilder, eager_steps

from kernel_compass.analysis.timeline_report import report_timeline
from kernel_compass.errors import (
    AmbiguousCapture,
    CaptureError,
    DamagedCapture,
    NotAMetricTable,
    NotATimeline,
)
from kernel_compass.profiling import kineto_json
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.records.profile import Regime, SourceFormat
from kernel_compass.records.trace import GpuWork, Trace


def one(path: Path) -> Trace:
    (trace,) = read_traces(path)
    return trace


def rows(trace: Trace) -> list[tuple]:
    return [(e.name, e.device, e.stream, e.start_us, e.duration_us) for e in trace.events]


def plain(tmp_path: Path, name: str = "t.json") -> Path:
    return eager_steps().write(tmp_path / name)


def test_what_a_trace_says(tmp_path: Path) -> None:
    trace = one(plain(tmp_path))
    assert trace.source.format is SourceFormat.KINETO_TRACE
    assert trace.source.regime is Regime.IN_SITU
    assert trace.device is not None
    assert (trace.device.name, trace.device.compute_capability) == ("NVIDIA H200", "9.0")
    assert trace.device.sm_count == 132
    assert len(trace.events) == 18
    assert len(trace.steps_us) == 3
    first = trace.events[0]
    assert (first.work, first.name, first.start_us) == (GpuWork.KERNEL, "small_0", 0.0)
    assert first.shape.grid == (132, 1, 1)
    assert first.shape.block == (128, 1, 1)
    metrics = dict(first.shape.metrics)
    assert metrics["registers_per_thread"] == 32
    assert metrics["estimated_occupancy_pct"] == 6
    assert metrics["blocks_per_sm"] == 1.0
    assert "achieved_occupancy_pct" not in metrics
    assert first.call is not None
    assert (first.call.name, first.call.start_us, first.call.duration_us) == (
        "cudaLaunchKernel", -10.0, 8.0,
    )  # fmt: skip
    assert first.op is not None
    assert first.op.name == "aten::add"


def test_every_form_gives_the_same_events(tmp_path: Path) -> None:
    wanted = rows(one(plain(tmp_path)))
    text = (tmp_path / "t.json").read_bytes()
    forms = {
        "a.json.gz": gzip.compress(text),
        "a.json.xz": lzma.compress(text),
        "bom.json": b"\xef\xbb\xbf" + text,
        "blank.json": b"\n\n  " + text + b"\n\n",
        "compact.json": json.dumps(json.loads(text), separators=(",", ":")).encode(),
        "no_suffix": text,
        "tail_first.json": _events_first(json.loads(text)),
        "bare.json": json.dumps(json.loads(text)["traceEvents"]).encode(),
    }
    for name, data in forms.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert rows(one(path)) == wanted, name


def _events_first(document: dict) -> bytes:
    events = document.pop("traceEvents")
    return json.dumps({"traceEvents": events} | document).encode()


@pytest.mark.parametrize("block", [37, 100, 1013, 4096, 1 << 20])
def test_blocks_may_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    trace = eager_steps()
    trace.kernel(9e5, 1.0, 'void f<{lambda(int)#1}, {x}>(int, "}, {")')
    path = trace.write(tmp_path / "t.json", distributedInfo={"rank": 3, "world_size": 8})
    wanted = rows(one(path))
    monkeypatch.setattr(kineto_json, "BLOCK", block)
    read = one(path)
    assert rows(read) == wanted
    assert (read.rank, read.world_size, read.name) == (3, 8, "rank 3 of 8")


def test_times_of_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    for base in ("1743521598000000", "5296140788704"):
        text = json.dumps(
            [
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "a",
                    "pid": 0,
                    "tid": 7,
                    "ts": "@",
                    "dur": 1.5,
                },
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "b",
                    "pid": 0,
                    "tid": 7,
                    "ts": "#",
                    "dur": "2",
                },
            ]
        )
        text = text.replace('"@"', f"{base}.125").replace('"#"', f'"{base[:-1]}9.127"')
        path = tmp_path / "t.json"
        path.write_text(text)
        first, second = one(path).events
        assert (first.start_us, first.duration_us, second.duration_us) == (0.0, 1.5, 2.0)
        assert second.start_us == pytest.approx(9.002 - int(base[-1]), abs=1e-9)


def test_begin_and_end_events(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for name, ts, ph in (("a", 10, "B"), ("b", 12, "B"), (None, 15, "E"), (None, 20, "E")):
        event = trace.add(
            "kernel", name or "", ts, 0, pid=0, tid=7, args={"device": 0, "stream": 7}
        )
        event["ph"] = ph
        del event["dur"]
    stray = trace.add("kernel", "", 30, 0, pid=0, tid=9, args={})
    stray["ph"] = "E"
    read = one(trace.write(tmp_path / "t.json"))
    assert [(e.name, e.start_us, e.duration_us) for e in read.events] == [("a", 0, 10), ("b", 2, 3)]
    assert any("1 begin or end" in warning for warning in read.warnings)


def test_categories_and_places_of_older_versions(tmp_path: Path) -> None:
    trace = TraceBuilder(base=1.6e15)
    kernel = trace.kernel(0, 5, cat="Kernel")
    del kernel["args"]["device"], kernel["args"]["stream"]
    kernel["tid"] = "stream 13"
    kernel["args"]["external id"] = trace.op("aten::mm", 0, 1)
    trace.events[-1]["cat"] = "Operator"
    copy = trace.add("Memset", "Memset (Device)", 9, 1, pid="0", tid="stream 13", args={})
    copy["args"]["bytes"] = 64
    read = one(trace.write(tmp_path / "t.json"))
    assert [(e.device, e.stream) for e in read.events] == [(0, 13), (0, 13)]
    assert read.events[0].op is not None
    assert (read.events[1].work, read.events[1].bytes) == (GpuWork.MEMSET, 64)


def test_what_is_no_gpu_work_is_skipped(tmp_path: Path) -> None:
    trace = eager_steps()
    wanted = rows(one(trace.write(tmp_path / "a.json")))
    trace.add("python_function", "f.py(3): g", 0, 1e6, args={"Python id": 1, "x": {"y": [1, {}]}})
    trace.add("gpu_user_annotation", "ProfilerStep#0", 1000, 500, pid=0, tid=7)
    trace.add("cuda_sync", "Stream Sync", 1000, 500, pid=0, tid=7, args={"stream": 7})
    trace.add("Trace", "PyTorch Profiler (0)", 0, 1, pid="Spans", tid="PyTorch Profiler")
    for ph in "sfMiC":
        event = {"ph": ph, "name": "ac2g", "pid": "", "tid": "", "ts": 1.0, "id": 3, "bp": "e"}
        trace.events.append(event | {"cat": "ac2g"})
    assert rows(one(trace.write(tmp_path / "b.json"))) == wanted


def test_kernels_of_a_graph_share_its_launch(tmp_path: Path) -> None:
    trace = TraceBuilder()
    op = trace.op("aten::mm", 0, 100)
    correlation = trace.call(10, 20, "cudaGraphLaunch", external=op)
    for at in range(3):
        trace.kernel(50 + 4 * at, 3, f"k{at}", correlation)
    read = one(trace.write(tmp_path / "t.json"))
    assert all(event.in_graph for event in read.events)
    assert all(event.op is None for event in read.events)
    assert read.calls == {"cudaGraphLaunch": (20.0,)}


def test_the_innermost_op_is_found_by_time_where_ids_are_missing(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.op("aten::linear", 0, 100)
    trace.op("aten::t", 1, 2)
    trace.op("aten::mm", 10, 50)
    correlation = trace.call(20)
    trace.kernel(40, 5, correlation=correlation)
    other = trace.call(70)
    trace.kernel(90, 5, correlation=other)
    for event in trace.events:
        event["args"].pop("External id", None)
    names = [e.op and e.op.name for e in one(trace.write(tmp_path / "t.json")).events]
    assert names == ["aten::mm", "aten::linear"]


def test_several_gpus_of_one_process(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.launch(0, 10, 5, "a", device=0)
    trace.launch(5, 12, 5, "a", device=1)
    read = one(trace.write(tmp_path / "t.json"))
    assert [event.device for event in read.events] == [0, 1]


def joined(labels: tuple[str, str] | None, pids=(11, 12), devices=(0, 0)) -> TraceBuilder:
    """Two ranks in one file, as tools join them: with labels in the process ids, or without."""
    whole = TraceBuilder()
    for at, pid in enumerate(pids):
        label = labels[at] + " " if labels else ""
        part = TraceBuilder(pid=f"{label}{pid}" if labels else pid)
        part.gpu_pid = f"{label}{devices[at]}" if labels else devices[at]
        part.correlation = 1000 * (pid if devices[0] != devices[1] else 0)
        for step in range(4):
            start = 10.0 + 20 * step + at
            part.launch(20.0 * step + at, start, 5 + at, f"rank{at}", device=devices[at])
        whole.events += part.events
    return whole


def test_labelled_ranks_in_one_file_are_taken_apart(tmp_path: Path) -> None:
    path = joined(("[TP00]", "[TP01]")).write(tmp_path / "t.json")
    first, second = read_traces(path)
    assert (first.name, second.name) == ("[TP00]", "[TP01]")
    assert {e.name for e in first.events} == {"rank0"}
    assert {e.name for e in second.events} == {"rank1"}
    assert all(e.call is not None for trace in (first, second) for e in trace.events)
    assert first.rank is None


def test_unlabelled_ranks_on_their_own_gpus_are_taken_apart(tmp_path: Path) -> None:
    path = joined(None, devices=(0, 1)).write(tmp_path / "t.json")
    first, second = read_traces(path)
    assert (first.name, second.name) == ("process 11", "process 12")
    assert [len(first.events), len(second.events)] == [4, 4]


@pytest.mark.parametrize("pids", [(11, 12), (1, 1)])
def test_ranks_that_cannot_be_told_apart_are_refused(tmp_path: Path, pids) -> None:
    path = joined(None, pids=pids).write(tmp_path / "t.json")
    with pytest.raises(AmbiguousCapture, match="one file a rank"):
        read_traces(path)


def test_a_trace_joined_with_itself_is_refused(tmp_path: Path) -> None:
    trace = eager_steps()
    trace.events += trace.events
    with pytest.raises(AmbiguousCapture, match="twice"):
        read_traces(trace.write(tmp_path / "t.json"))


def test_a_cut_file_is_refused_and_says_how_far_it_goes(tmp_path: Path) -> None:
    text = plain(tmp_path).read_bytes()
    for share in (0.3, 0.6, 0.95, 0.999):
        path = tmp_path / "cut.json"
        path.write_bytes(text[: int(len(text) * share)])
        with pytest.raises(DamagedCapture, match=r"cut off.* events could be read"):
            read_traces(path)


def test_a_file_cut_at_every_byte_is_refused(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.launch(0, 10, 5, 'k<{"}, {"}>')
    trace.launch(20, 30, 5)
    text = trace.write(tmp_path / "t.json").read_bytes().rstrip()
    path = tmp_path / "cut.json"
    for size in range(1, len(text)):
        path.write_bytes(text[:size])
        with pytest.raises((DamagedCapture, NotATimeline)):
            read_traces(path)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(plain(tmp_path).read_bytes())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(DamagedCapture):
        read_traces(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.99])
def test_a_cut_archive_says_once_that_it_is_cut_and_what_could_be_read(
    pack: Callable[[bytes], bytes], share: float, tmp_path: Path
) -> None:
    trace = TraceBuilder()
    rng = random.Random(7)
    for at in range(9000):  # more than fits into the first bytes that are looked at
        trace.launch(20 * at, 20 * at + 10, 5, f"k_{rng.getrandbits(64):x}")
    data = pack(trace.write(tmp_path / "t.json").read_bytes())
    cut = data[: int(len(data) * share)]
    unpack = zlib.decompressobj(31) if pack is gzip.compress else lzma.LZMADecompressor()
    held = unpack.decompress(cut).decode()
    whole = held.count('"ph": "X"') - (not held.rstrip().rstrip(",").endswith("\n  }"))
    assert whole > 100
    path = tmp_path / "cut.json.gz"
    path.write_bytes(cut)
    with pytest.raises(DamagedCapture) as caught:
        read_traces(path)
    assert f" {whole:,} events could be read" in caught.value.found
    assert caught.value.found.count("cut off") == 1
    assert caught.value.found.count(str(path)) == 1


def test_a_broken_archive_is_damaged_and_not_cut(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(plain(tmp_path).read_bytes()))
    data[-6] ^= 0xFF  # the checksum
    path = tmp_path / "t.json.gz"
    path.write_bytes(bytes(data))
    with pytest.raises(DamagedCapture, match=r"is damaged after .* CRC") as caught:
        read_traces(path)
    assert "cut off" not in caught.value.found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "no JSON"),
        ("{not json}", "no JSON"),
        ('{"a": 1, "schema": "x"}', "no trace.*'a', 'schema'"),
        ("{}", "no trace"),
        ("[]", "without GPU events"),
        ('{"traceEvents": []}', "without GPU events"),
        ('{"x": {"traceEvents": []}}', "no trace"),
    ],
)
def test_what_is_no_timeline(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(NotATimeline, match=message):
        read_traces(path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"")
    with pytest.raises(NotAMetricTable, match="empty"):
        read_traces(path)


def test_a_trace_of_the_cpu_alone_says_what_it_holds(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for at in range(5):
        trace.op("aten::mm", at, 1)
    with pytest.raises(NotATimeline, match="5 operators and 0 CUDA calls") as caught:
        read_traces(trace.write(tmp_path / "t.json"))
    assert "--no-counters" in caught.value.remedy


@pytest.mark.parametrize("duration", [-1.0, "NaN", None, "soon"])
def test_impossible_durations_are_refused(tmp_path: Path, duration) -> None:
    trace = eager_steps()
    trace.kernel(5e5, 1.0, "the_bad_one")["dur"] = duration
    with pytest.raises(DamagedCapture, match="the_bad_one"):
        read_traces(trace.write(tmp_path / "t.json"))


def test_bare_nan_is_no_duration_but_elsewhere_only_missing(tmp_path: Path) -> None:
    trace = eager_steps()
    text = json.dumps(trace.document())
    odd = text.replace('"est. achieved occupancy %": 6', '"est. achieved occupancy %": nan', 1)
    odd = odd.replace('"aten::add"', r'"C:\users\x"', 1)
    path = tmp_path / "t.json"
    path.write_text(odd)
    read = one(path)
    assert len(read.events) == 18
    assert "estimated_occupancy_pct" not in dict(read.events[0].shape.metrics)
    assert any("JSON does not allow" in warning for warning in read.warnings)
    path.write_text(text.replace('"dur": 100.0', '"dur": NaN', 1))
    with pytest.raises(DamagedCapture, match="gemm"):
        read_traces(path)


@pytest.mark.parametrize(
    "event",
    [
        '{"ph": 3}',
        "null",
        "17",
        '{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "args": {"grid": "no"}}',
        '{"ph": "X" "cat": "kernel"}',
        '{"ph": "X",}',
    ],
)
def test_broken_events_are_refused(tmp_path: Path, event: str) -> None:
    text = json.dumps(eager_steps().document())
    path = tmp_path / "t.json"
    path.write_text(text.replace('"traceEvents": [', f'"traceEvents": [{event}, ', 1))
    with pytest.raises(DamagedCapture, match="damaged"):
        read_traces(path)


def test_bytes_that_are_no_utf8_and_headers_of_other_types(tmp_path: Path) -> None:
    text = json.dumps(eager_steps().document(distributedInfo="none")).encode()
    path = tmp_path / "t.json"
    path.write_bytes(text.replace(b'"gemm"', b'"ge\xffmm"', 1))
    assert len(one(path).events) == 18


def test_kernels_without_a_call_are_counted(tmp_path: Path) -> None:
    trace = eager_steps()
    trace.kernel(5e5, 1.0, correlation=77_777)
    (read,) = read_traces(trace.write(tmp_path / "t.json"))
    assert any("1 of 19 GPU events have no call" in warning for warning in read.warnings)


def test_the_process_of_the_cpu_does_not_matter(tmp_path: Path) -> None:
    assert PID not in {e.device for e in one(plain(tmp_path)).events}


def test_all_refusals_have_a_next_step(tmp_path: Path) -> None:
    for name, text in {"a.json": "{", "b.json": "[]", "c.json": "{}", "d.json": "x"}.items():
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(CaptureError) as caught:
            read_traces(path)
        assert caught.value.remedy
        assert name in caught.value.found


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_file_with_wrong_bytes_is_read_or_refused_and_nothing_else(
    tmp_path: Path, data: st.DataObject
) -> None:
    text = bytearray(json.dumps(eager_steps(1).document()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        what = data.draw(st.sampled_from([b"", b'"', b"{", b"]", b",", b"-", b"\\", b"\x00", b"9"]))
        text[at : at + data.draw(st.integers(0, 2))] = what
    path = tmp_path / "wrong.json"
    path.write_bytes(bytes(text))
    try:
        traces = read_traces(path)
    except CaptureError as error:
        assert error.remedy
        return
    for trace in traces:
        report = report_timeline(trace)
        assert report.timeline is not None
        for use in report.timeline.devices:
            assert use.busy_us + use.idle_us == pytest.approx(use.span_us)
