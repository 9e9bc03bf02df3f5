"""Timelines through the doors users take: files, folders, every format."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from kineto_files import H200, TraceBuilder, eager_steps

from kernel_compass.api import diagnose_files, diagnose_profiles, read_capture
from kernel_compass.codec.diagnosis_json import decode, encode, schema
from kernel_compass.errors import CaptureError, NotAMetricTable, NotATimeline, UsageError
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.profile import Regime
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render

ROOT = Path(__file__).resolve().parents[2]
TRUTH = ROOT / "tests" / "golden" / "ncu" / "h200_bmm_warm.csv"


def test_one_file_gives_one_report(tmp_path: Path) -> None:
    (report,) = diagnose_files([eager_steps().write(tmp_path / "t.json.gz")])
    assert report.timeline is not None
    assert [item.kernel.name for item in report.kernels][:2] == ["gemm", "small_0"]
    assert report.kernels[0].share_of_time == pytest.approx(300 / 345)


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    path = eager_steps().write(tmp_path / "capture.csv")
    assert diagnose_files([path])[0].timeline is not None
    table = tmp_path / "table.csv"
    table.write_bytes(TRUTH.read_bytes())
    assert diagnose_files([table])[0].timeline is None


def test_a_json_name_without_json_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("==PROF== Connected\n")
    with pytest.raises(NotATimeline, match="no JSON: it begins with b'==PROF=="):
        diagnose_files([path])


def test_our_own_report_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(encode(diagnose_files([TRUTH])[0]))
    with pytest.raises(NotATimeline, match="'schema'"):
        diagnose_files([path])


def rank_trace(rank: int, world: int = 2) -> TraceBuilder:
    trace = eager_steps(steps=1 + rank)
    trace.kernel(5e4, 3.0, f"only_{rank}")
    return trace


def test_a_folder_of_ranks_gives_a_report_each(tmp_path: Path) -> None:
    for rank, name in ((1, "a.pt.trace.json"), (0, "b.pt.trace.json.gz")):
        info = {"rank": rank, "world_size": 2}
        rank_trace(rank).write(tmp_path / name, distributedInfo=info)
    (tmp_path / "config.json").write_text('{"model": "x"}')
    (tmp_path / "empty.json").write_text("")
    first, second = diagnose_files([tmp_path], label="serve")
    assert (first.label, second.label) == ("serve, rank 0 of 2", "serve, rank 1 of 2")
    for rank, report in enumerate((first, second)):
        assert {k.kernel.launches for k in report.kernels if k.kernel.name == "gemm"} == {1 + rank}
        assert f"only_{rank}" in {item.kernel.name for item in report.kernels}


def test_a_folder_with_a_damaged_rank_reports_none(tmp_path: Path) -> None:
    eager_steps().write(tmp_path / "a.json")
    whole = (tmp_path / "a.json").read_text()
    (tmp_path / "b.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(CaptureError, match=r"b\.json is cut off"):
        diagnose_files([tmp_path])


def test_a_folder_with_a_damaged_rank_reports_the_others_to_who_takes_the_failure(
    tmp_path: Path,
) -> None:
    for rank in (0, 1, 3):
        info = {"rank": rank, "world_size": 4}
        rank_trace(rank, 4).write(tmp_path / f"{rank}.json", distributedInfo=info)
    whole = (tmp_path / "0.json").read_text()
    (tmp_path / "2.json").write_text(whole[: len(whole) // 2])
    (tmp_path / "4.json.gz").write_bytes(b"\x1f\x8bno archive at all")
    errors: list[CaptureError] = []
    found = diagnose_files([tmp_path], on_error=errors.append)
    assert [report.label for report in found] == [f"rank {rank} of 4" for rank in (0, 1, 3)]
    assert [name for e in errors for name in ("2.json", "4.json.gz") if name in e.found] == [
        "2.json", "4.json.gz",
    ]  # fmt: skip


def test_a_damaged_capture_beside_traces_hides_neither(tmp_path: Path) -> None:
    eager_steps().write(tmp_path / "t.json")
    (tmp_path / "w.csv").write_bytes(TRUTH.read_bytes())
    (tmp_path / "c.csv").write_bytes(TRUTH.read_bytes()[:-700])
    entries = [
        {"regime": regime, "capture": {"csv": name}, "label": "x"}
        for regime, name in (("warm", "w.csv"), ("cold", "c.csv"))
    ]
    index = {"schema": "kernel-compass/captures/1", "captures": entries}
    (tmp_path / "captures.json").write_text(json.dumps(index))
    errors: list[CaptureError] = []
    saved, timeline = diagnose_files([tmp_path], on_error=errors.append)
    assert [source.regime for source in saved.sources] == [Regime.WARM]
    assert timeline.timeline is not None
    (error,) = errors
    assert "c.csv" in error.found


def test_a_folder_without_anything(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model": "x"}')
    with pytest.raises(NotAMetricTable):
        diagnose_files([tmp_path])


def test_a_timeline_has_no_place_among_regimes(tmp_path: Path) -> None:
    path = eager_steps().write(tmp_path / "t.json")
    with pytest.raises(UsageError, match="in_situ"):
        diagnose_files([], {Regime.WARM: path, Regime.COLD: TRUTH})


def test_a_timeline_beside_a_capture(tmp_path: Path) -> None:
    """The capture's kernels are bmm products; the trace has one of them, with gaps before it."""
    (alone,) = diagnose_files([TRUTH])
    trace = TraceBuilder()
    for item in alone.kernels:
        kernel = item.kernel
        for at in range(3):
            trace.kernel(100.0 * at, 2.0, kernel.name, grid=kernel.grid, block=kernel.block)
    path = trace.write(tmp_path / "t.json")
    (report,) = diagnose_files([TRUTH], timeline=path)
    assert report.timeline is None  # the capture's report, not the trace's
    for item, old in zip(report.kernels, alone.kernels, strict=True):
        suspected = old.kernel.diagnosis.limiter is Limiter.LAUNCH_BOUND
        assert (item.kernel.diagnosis != old.kernel.diagnosis) is suspected


def test_a_timeline_of_several_processes_or_another_gpu_judges_no_capture(tmp_path: Path) -> None:
    trace = eager_steps()
    ranks = [{**e, "pid": f"[TP{n:02d}] {e['pid']}"} for n in (0, 1) for e in trace.events]
    both = TraceBuilder(events=ranks).write(tmp_path / "ranks.json")
    with pytest.raises(UsageError, match="holds 2 processes"):
        diagnose_files([TRUTH], timeline=both)
    other = trace.write(tmp_path / "t.json", deviceProperties=[H200 | {"name": H100}])
    with pytest.raises(UsageError, match="The timeline is of an NVIDIA H100"):
        diagnose_profiles([replace(read_capture(TRUTH), device=Device("NVIDIA H200"))],
                          timeline=diagnose_files([other])[0])  # fmt: skip


def test_the_document_keeps_the_contract_and_comes_back(tmp_path: Path) -> None:
    trace = eager_steps()
    trace.copy(90_000, 12, 4096)
    trace.copy(90_050, 12, 4096, device=0, stream=9)
    correlation = trace.call(90_100, 5, "cudaGraphLaunch")
    for at in range(4):
        trace.kernel(90_110 + 4 * at, 3, f"in_graph_{at}", correlation)
    (report,) = diagnose_files([trace.write(tmp_path / "t.json")])
    data = json.loads(encode(report))
    jsonschema.Draft202012Validator(schema()).validate(data)
    back = decode(encode(report))
    assert back.timeline == report.timeline
    # The number of the GPU is written only where there are several.
    kernels = [replace(k, kernel=replace(k.kernel, device=None)) for k in report.kernels]
    assert list(back.kernels) == kernels
    assert data["timeline"]["other_work"][0] == {
        "name": "Memcpy HtoD (Pageable -> Device)", "count": 2, "total_us": 24.0, "bytes": 8192,
    }  # fmt: skip
    assert data["timeline"]["graph_launches"] == 1
    assert data["kernels"][0]["timeline"]["launches_in_runs"] == 0


def test_reports_of_captures_have_no_timeline_in_their_document() -> None:
    data = json.loads(encode(diagnose_files([TRUTH])[0]))
    assert "timeline" not in data
    assert all("timeline" not in kernel for kernel in data["kernels"])


def test_the_table_has_the_columns_of_timelines_only_where_there_is_one(tmp_path: Path) -> None:
    (report,) = diagnose_files([eager_steps().write(tmp_path / "t.json")])
    rows = list(csv.DictReader(io.StringIO(render(report, Format.CSV))))
    assert rows[1]["gap_before_us"] == "17.0"
    assert rows[1]["launches_in_runs"] == "3"
    assert rows[0]["op"] == "aten::mm"
    assert rows[0]["compulsory_bytes"] == ""
    assert "gap_before_us" not in render(diagnose_files([TRUTH])[0], Format.CSV)


@pytest.mark.parametrize("format", [Format.TERMINAL, Format.MARKDOWN])
def test_people_read_what_the_program_waits_for(tmp_path: Path, format: Format) -> None:
    (report,) = diagnose_files([eager_steps().write(tmp_path / "t.json")])
    text = " ".join(render(report, format, width=400).replace("\\", "").replace("**", "").split())
    for words in (
        "GPU busy 345 us of 514 us (67 %), idle 169 us in 17 gaps",
        "CPU behind: 135 us of 169 us idle (80 %)",
        "launch-bound run of 5 kernels from small_0 to small_4, 3 times: busy 45.0 us of 153 us",
        "gap 17.0 us between gemm and small_0",
        "cudaLaunchKernel 18 x 8.00 us",
        "steps 3, median 177 us",
        "no confidence is over 0.65",
    ):
        assert words in text
    assert "a timeline confirms it" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_terminal_output_stays_within_its_width(tmp_path: Path, width: int) -> None:
    trace = eager_steps()
    trace.launch(80_000, 80_010, 5, "void a::very<long, name>(int, float*)" * 8)
    (report,) = diagnose_files([trace.write(tmp_path / "t.json")])
    lines = render(report, Format.TERMINAL, width=width).splitlines()
    assert max(map(len, lines)) <= max(width, 60)


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    trace = eager_steps()
    trace.copy(80_000, 9, 1, kind="\x1b[31mDtoD")
    trace.launch(90_000, 90_010, 5, "evil\x1b]0;title\x07")
    (report,) = diagnose_files([trace.write(tmp_path / "t.json")])
    for format in (Format.TERMINAL, Format.MARKDOWN):
        assert "\x1b" not in render(report, format)


H100 = "NVIDIA H100 80GB HBM3"
"""A GPU whose calibration is shipped; it streams 117 MB in about 40 us."""


def products(tmp_path: Path, duration: float) -> Path:
    """Three launches of a bf16 product that reads 117 MB, on an H100."""
    trace = TraceBuilder()
    dims, types = [[16, 4096], [4096, 14336]], ["c10::BFloat16"] * 2
    for at in range(3):
        external = trace.op("aten::mm", 600 * at, 20, dims, types)
        correlation = trace.call(600 * at + 5, external=external)
        start = 600 * at + 30
        trace.kernel(start, duration, "gemm", correlation, **{"External id": external})
    return trace.write(tmp_path / "t.json", deviceProperties=[H200 | {"name": H100}])


def test_the_shipped_calibration_of_the_gpu_makes_known_bytes_an_estimate(tmp_path: Path) -> None:
    (report,) = diagnose_files([products(tmp_path, 42.0)])
    diagnosis = report.kernels[0].kernel.diagnosis
    assert report.calibration is not None
    assert diagnosis is not None
    assert diagnosis.limiter is Limiter.DRAM_BOUND
    assert diagnosis.confidence <= 0.5
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.basis == "compulsory"
    assert 0.9 < diagnosis.headroom.value < 1.4
    assert "estimate" in diagnosis.advice[1]


def test_without_a_calibration_nothing_is_estimated(tmp_path: Path) -> None:
    (report,) = diagnose_files([products(tmp_path, 42.0)], calibration="none")
    diagnosis = report.kernels[0].kernel.diagnosis
    assert report.calibration is None
    assert diagnosis is not None
    assert (diagnosis.limiter, diagnosis.headroom) == (Limiter.UNCLASSIFIED, None)
    assert report.warnings == ()  # it was asked for


LACKING = "no estimates, no headroom; --calibration NAME|FILE, or kernel-compass calibrate"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ([H200 | {"name": "NVIDIA RTX A6000"}], "no calibration of this GPU, NVIDIA RTX A6000: "),
        ([], "the GPU is not stated, so there is no calibration of it: "),
    ],
)
def test_why_nothing_is_estimated_is_said(properties: list, words: str, tmp_path: Path) -> None:
    path = products(tmp_path, 42.0)
    document = json.loads(path.read_text()) | {"deviceProperties": properties}
    path.write_text(json.dumps(document))
    (report,) = diagnose_files([path])
    assert report.calibration is None
    (warning,) = report.warnings
    assert warning.startswith(words + LACKING)
    assert json.loads(encode(report))["warnings"] == [warning]
    assert warning in " ".join(render(report, Format.TERMINAL, width=400).split())


def test_a_capture_of_a_gpu_without_a_calibration_says_so(tmp_path: Path) -> None:
    (known,) = diagnose_files([TRUTH], calibration="h200")
    (asked,) = diagnose_files([TRUTH], calibration="none")
    assert not [w for w in (*known.warnings, *asked.warnings) if "--calibration" in w]
    other = tmp_path / "other.csv"
    other.write_bytes(TRUTH.read_bytes())
    profile = replace(read_capture(other), device=Device("NVIDIA RTX A6000"))
    report = diagnose_profiles([profile])
    assert report.calibration is None
    assert "no calibration of this GPU, NVIDIA RTX A6000: no headroom;" in report.warnings[-1]


def test_a_trace_is_judged_by_its_own_gpus_fixed_cost(tmp_path: Path) -> None:
    (shipped,) = diagnose_files([products(tmp_path, 5.0)])
    (typical,) = diagnose_files([products(tmp_path, 5.0)], calibration="none")
    first, second = (
        next(
            e for e in r.kernels[0].kernel.diagnosis.evidence if e.metric == "timeline_duration_us"
        )
        for r in (shipped, typical)
    )
    assert first.threshold == pytest.approx(2.326 + 3.6)  # the H100's t0
    assert second.threshold == pytest.approx(4.5)
    assert "typical" in second.meaning
    assert "typical" not in first.meaning


def test_headroom_of_a_kernel_that_takes_its_time(tmp_path: Path) -> None:
    (fast,) = diagnose_files([products(tmp_path, 42.0)])
    (slow,) = diagnose_files([products(tmp_path, 420.0)])
    one, ten = (r.kernels[0].kernel.diagnosis for r in (fast, slow))
    assert one is not None
    assert ten is not None
    assert one.headroom is not None
    assert ten.headroom is not None
    assert ten.headroom.value == pytest.approx(10 * one.headroom.value)
    assert ten.limiter is Limiter.UNCLASSIFIED


def test_a_calibration_of_another_gpu_is_told(tmp_path: Path) -> None:
    (report,) = diagnose_files([products(tmp_path, 42.0)], calibration="a100")
    assert any("A100" in warning for warning in report.warnings)


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernel_compass", "diagnose", *map(str, words)],
        capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def test_the_option_timeline_of_a_process(tmp_path: Path) -> None:
    path = eager_steps().write(tmp_path / "t.json")
    done = command("--json", "--regime", f"warm={TRUTH}", "--timeline", path)
    assert (done.returncode, json.loads(done.stdout)["sources"][0]["regime"]) == (0, "warm")
    assert command("--timeline", path).returncode == 2  # it judges captures, and there is none
    missing = command(TRUTH, "--timeline", tmp_path / "none.json")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "none.json" in missing.stderr


def test_exit_codes_of_a_process(tmp_path: Path) -> None:
    good = eager_steps().write(tmp_path / "good.json")
    bad = tmp_path / "bad.json"
    bad.write_text(good.read_text()[:5000])
    run = [sys.executable, "-m", "kernel_compass", "diagnose", "--json"]
    for files, code in (([good], 0), ([bad], 3), ([good, bad], 3), ([tmp_path], 3)):
        done = subprocess.run(
            [*run, *map(str, files)], capture_output=True, text=True, check=False,
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        # A folder and several files report what is good in them.
        assert bool(done.stdout) is (files != [bad])
        reports = json.loads(done.stdout) if done.stdout else None
        assert isinstance(reports, list) is (files not in ([good], [bad]))
        if code:
            assert "bad.json is cut off" in done.stderr
            assert "next: " in done.stderr
