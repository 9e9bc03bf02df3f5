"""Reports: through NVIDIA's package, through ncu, damaged, and with neither reader."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from ncu_files import GOLDEN, golden_bytes

from kernel_compass.errors import CaptureError, DamagedCapture, MissingDependency
from kernel_compass.profiling import ncu_report_file
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import Profile, SourceFormat

REPORT = "h200_scale_add.ncu-rep.xz"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "scale_add.ncu-rep"
    path.write_bytes(golden_bytes(REPORT))
    return path


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The package's import fails in the reading process."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "ncu_report.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(str(tmp_path / "hidden"))
    monkeypatch.setenv("PATH", str(tmp_path))


def check(profile: Profile) -> None:
    scale, add = profile.kernels
    assert (scale.name, add.name) == (
        "void scale<float>(T1 *, T1, int)",
        "add(float *, const float *, int)",
    )
    assert (scale.grid, scale.block, scale.launches) == ((16384, 1, 1), (256, 1, 1), 2)
    assert scale.duration_stats is not None
    assert scale.duration_stats.mean == pytest.approx(13.792)
    assert scale.metrics["registers_per_thread"] == 16
    assert scale.metrics["sm_throughput_pct"] == pytest.approx(38.9, rel=0.05)
    assert profile.device is not None
    assert (profile.device.name, profile.device.sm_count) == ("NVIDIA H200", 132)
    assert profile.source.format is SourceFormat.NCU_REP


def test_report(report: Path) -> None:
    pytest.importorskip("ncu_report")
    profile = read_capture(report)
    check(profile)
    assert profile.source.replay_mode == "kernel"
    assert profile.source.ncu_version == "2025.3.1"
    assert (profile.source.cache_control, profile.source.clock_control) == ("all", "base")
    rules = {rule.name: rule for rule in profile.kernels[0].rules}
    assert rules["AchievedOccupancy"].estimated_speedup_pct == pytest.approx(27.58, rel=0.01)
    assert rules["SOLBottleneck"].kind == "OPT"
    assert "@" not in rules["SOLBottleneck"].text


def test_metric_list_with_its_cache_control() -> None:
    pytest.importorskip("ncu_report")
    profile = read_capture(GOLDEN / "h200_scale_add_metrics.ncu-rep.xz")
    assert (profile.source.cache_control, profile.source.clock_control) == ("none", "none")
    kernel = profile.kernels[0]
    assert kernel.metrics["dram_bytes_read"] > 0
    assert kernel.metrics["l2_hit_rate_pct"] == pytest.approx(90.5, rel=0.01)


@pytest.mark.parametrize("kind", ["cut", "junk", "magic", "overwritten"])
def test_damaged_reports(kind: str, report: Path) -> None:
    pytest.importorskip("ncu_report")
    data, draw = report.read_bytes(), random.Random(kind)
    if kind == "cut":
        data = data[: draw.randrange(4, len(data) // 4)]
    elif kind == "junk":
        data = data[:4] + draw.randbytes(3000)
    elif kind == "magic":
        data = data[:4]
    else:
        at = draw.randrange(100, len(data) // 2)
        data = data[:at] + draw.randbytes(5000) + data[at + 5000 :]
    report.write_bytes(data)
    try:
        read_capture(report)
    except CaptureError as refusal:
        assert str(report) in refusal.found


def test_no_launch_is_a_refusal(report: Path) -> None:
    pytest.importorskip("ncu_report")
    report.write_bytes(b"NVR\0" + bytes(64))
    with pytest.raises(DamagedCapture, match="report that cannot be read"):
        read_capture(report)


@pytest.mark.usefixtures("without_package")
def test_without_any_reader(report: Path) -> None:
    with pytest.raises(MissingDependency, match=r"pip install ncu-report"):
        read_capture(report)


@pytest.mark.usefixtures("without_package")
def test_export_by_the_installed_ncu(report: Path, tmp_path: Path) -> None:
    exported = tmp_path / "export.csv"
    exported.write_bytes(golden_bytes("h200_scale_add_raw_instances.csv.xz"))
    fake_ncu(tmp_path, f'[ "$LC_ALL" = C ] && exec /bin/cat {exported}')
    check(read_capture(report))


@pytest.mark.usefixtures("without_package")
def test_ncu_that_refuses_the_report(report: Path, tmp_path: Path) -> None:
    fake_ncu(tmp_path, 'echo "==ERROR== Failed to load report file" >&2; exit 1')
    with pytest.raises(DamagedCapture, match="Failed to load report file"):
        read_capture(report)


def test_a_reader_that_hangs(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_report_file, "TIMEOUT_S", 0.01)
    with pytest.raises(DamagedCapture, match="did not end"):
        read_capture(report)


def fake_ncu(folder: Path, script: str) -> None:
    ncu = folder / "ncu"
    ncu.write_text(f"#!/bin/sh\n{script}\n")
    os.chmod(ncu, 0o755)  # noqa: PTH101
