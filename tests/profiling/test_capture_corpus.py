"""Foreign ncu files of many versions, GPUs and locales, against their right answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_files import SHARED, shared_folder

from kernel_compass.errors import NotAMetricTable
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import KernelProfile

KEYS = {
    "sm": "sm_throughput_pct",
    "dram": "dram_throughput_pct",
    "l2hit": "l2_hit_rate_pct",
    "l2thr": "l2_throughput_pct",
    "occ": "achieved_occupancy_pct",
    "regs": "registers_per_thread",
    "rd": "dram_bytes_read",
    "wr": "dram_bytes_written",
    "dramB": "dram_bytes",
    "rdhit": "l2_read_sectors_hit",
    "rdmiss": "l2_read_sectors_missed",
}


def _expected() -> dict[str, dict[str, Any]]:
    path = SHARED / "ncu_corpus" / "expected.json"
    return json.loads(path.read_text()) if path.exists() else {}


EXPECTED = _expected()


@pytest.mark.parametrize("name", sorted(EXPECTED) or ["corpus"])
def test_corpus_file(name: str) -> None:
    folder = shared_folder("ncu_corpus")
    expected = EXPECTED[name]
    if expected["refuse"] is not False:
        with pytest.raises(NotAMetricTable) as refusal:
            read_capture(folder / name)
        assert str(folder / name) in refusal.value.found
        return
    profile = read_capture(folder / name)
    assert sum(kernel.launches for kernel in profile.kernels) == expected["launches"]
    for answer in expected["kernels"]:
        groups = [k for k in profile.kernels if k.name == answer["kernel"]]
        assert sum(k.launches for k in groups) == answer["launches"]
        for key in answer.keys() - {"kernel", "launches"}:
            assert _mean(groups, key) == pytest.approx(answer[key], rel=0.01), key


def _mean(groups: list[KernelProfile], key: str) -> float:
    values = [
        (k.avg_duration_us if key == "dur" else k.metrics.get(KEYS[key]), k.launches)
        for k in groups
    ]
    known = [(value, n) for value, n in values if value is not None]
    return sum(value * n for value, n in known) / sum(n for _, n in known)


def _captures() -> list[Path]:
    return sorted((SHARED / "h200_captures").glob("*.csv"))


@pytest.mark.parametrize("path", _captures() or [Path("h200_captures")], ids=lambda p: p.name)
def test_own_capture_reads_without_warnings_about_cuts(path: Path) -> None:
    shared_folder("h200_captures")
    profile = read_capture(path)
    assert profile.kernels
    assert not [w for w in profile.warnings if "fewer" in w or "cut" in w]
    assert all(k.duration_stats and k.metrics for k in profile.kernels)
