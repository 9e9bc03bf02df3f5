"""`mla` and `sweep` with torch on the CPU: every part but the GPU is the real one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from api.cpu_device import CpuDevice

import kernel_compass.api.kernels as doors
from kernel_compass.api.kernel_operands import TorchOperands
from kernel_compass.cli.main import main
from kernel_compass.codec.kernel_table import decode
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.kernel_table import RowStatus

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

QUICK = TimingOptions(samples=3, settle_us=0.0, replay_us=20.0, rotation_bytes=1 << 20, check=False)
SMALL = ("sweep", "--heads", "4", "--n", "64,96", "--tokens", "1,3", "--gpu", "h200")


@pytest.fixture
def say(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doors, "TorchDevice", CpuDevice)
    monkeypatch.setattr(doors, "TorchOperands", lambda _where, seed=0: TorchOperands("cpu", seed))
    opening = doors.open_table
    monkeypatch.setattr(
        doors, "open_table", lambda *args, **more: opening(*args, **more, options=QUICK)
    )

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("layout", [(), ("--contiguous",)])
def test_the_baseline_is_checked_and_timed_warm_and_rotated(say, tmp_path, layout):
    file = tmp_path / "t.json"
    words = (*SMALL, "--precisions", "bf16", "--implementations", "cublas_bf16", *layout)
    code, out, err = say(*words, "--output", file)
    assert code == 0, err
    rows = decode(file.read_bytes()).rows
    assert [r.status for r in rows] == [RowStatus.MEASURED] * 8
    for row in rows:
        assert 0.05 < row.fidelity_error_pct < 0.25
        assert row.time_us == 2.0 and row.speedup == 1.0
        assert row.floor_basis.startswith("calibration h200")
    assert "cublas_bf16" in out


def test_formats_that_nothing_here_computes_are_refused_by_name(say, tmp_path):
    file = tmp_path / "t.json"
    words = (*SMALL, "--precisions", "w8a8_fp8", "--implementations", "cublas_bf16")
    code, out, err = say(*words, "--output", file)
    assert code == 0, err  # the baseline was measured
    rows = decode(file.read_bytes()).rows
    refused = [r for r in rows if r.status is RowStatus.UNSUPPORTED]
    assert len(refused) == 8
    assert "unsupported: cublas_bf16 in w8a8_fp8" in " ".join(out.split())


def test_ncu_mode_launches_in_named_ranges(say, monkeypatch):
    from contextlib import contextmanager

    marked = []

    @contextmanager
    def mark(name):
        marked.append(name)
        yield

    monkeypatch.setattr(doors, "nvtx_range", lambda _torch: mark)
    words = ("--model", "deepseek-v2-lite", "--tokens", "1", "--precisions", "bf16")
    code, out, err = say("mla", *words, "--implementations", "cublas_bf16", "--ncu-mode")
    assert code == 0
    assert out.split() == marked
    assert marked == [
        "q_absorb.bmm.16x1x128x512.bf16.cublas_bf16",
        "v_up.bmm.16x1x512x128.bf16.cublas_bf16",
    ]
    assert "--nvtx-include" in err
