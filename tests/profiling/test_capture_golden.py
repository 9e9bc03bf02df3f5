"""Our own recordings, read: values taken from the files by eye, and forms that must agree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ncu_files import GOLDEN, assert_same_kernels, golden_bytes, read_text

from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import Profile, Regime, SourceFormat


def golden(name: str) -> Profile:
    return read_capture(GOLDEN / name)


def test_metric_list_of_a_bmm() -> None:
    profile = golden("h200_bmm_warm.csv")
    (kernel,) = profile.kernels
    assert kernel.name.startswith("nvjet_sm90")
    assert (kernel.launches, kernel.device) == (3, 0)
    assert kernel.metrics["dram_bytes_read"] < 2e6
    assert kernel.metrics["l2_hit_rate_pct"] > 90
    assert profile.source.format is SourceFormat.NCU_CSV_LONG
    assert (profile.source.cache_control, profile.source.clock_control) == ("none", "none")
    assert profile.source.regime is Regime.UNKNOWN
    (warning,) = profile.warnings
    assert "lts__t_sectors_srcunit_tex_op_read_lookup_hit_rate.pct" in warning


def test_regime_and_label_come_from_the_caller() -> None:
    profile = read_capture(str(GOLDEN / "h200_bmm_warm.csv"), Regime.WARM, "bmm")
    assert (profile.source.regime, profile.label) == (Regime.WARM, "bmm")


def test_decode_block_groups_launches_by_grid() -> None:
    profile = golden("h200_decode_metrics.csv.xz")
    assert sum(k.launches for k in profile.kernels) == 8
    first = profile.kernels[0]
    assert (first.grid, first.block) == ((128, 1, 1), (128, 1, 1))
    assert first.metrics["dram_bytes"] == pytest.approx(
        first.metrics["dram_bytes_read"] + first.metrics["dram_bytes_written"]
    )
    assert first.duration_stats is not None
    assert first.duration_stats.min == pytest.approx(3.936, rel=0.2)


def test_raw_page_names_the_device() -> None:
    device = golden("h200_truth_raw.csv.xz").device
    assert device is not None
    assert (device.name, device.compute_capability) == ("NVIDIA H200", "9.0")
    assert (device.sm_count, device.l2_bytes) == (132, 62_914_560)


def test_raw_page_values() -> None:
    copy, reread, tiny = golden("h200_truth_raw.csv.xz").kernels
    assert (copy.name, reread.name, tiny.name) == ("k_dram_copy", "k_l2_reread", "k_tiny")
    assert copy.metrics["dram_bytes_read"] == pytest.approx(1.0737e9, rel=1e-3)
    assert copy.duration_stats is not None
    assert copy.duration_stats.min == pytest.approx(536, rel=0.01)
    assert reread.metrics["dram_bytes_read"] < 0.05 * reread.metrics["l2_bytes_read"]
    assert tiny.grid == (1, 1, 1)


@pytest.mark.parametrize("other", ["h200_truth_raw_base.csv.xz", "h200_truth_details.csv.xz"])
def test_pages_of_one_report_agree(other: str) -> None:
    raw, page = golden("h200_truth_raw.csv.xz"), golden(other)
    assert [k.identity for k in page.kernels] == [k.identity for k in raw.kernels]
    for ours, theirs in zip(page.kernels, raw.kernels, strict=True):
        assert ours.avg_duration_us == pytest.approx(theirs.avg_duration_us, rel=0.01)
        shared = ours.metrics.keys() & theirs.metrics.keys()
        assert len(shared) > 35
        for key in shared:
            slack = 1100.0 if "bytes" in key else 0.01  # six decimals of a Gbyte, two of others
            assert ours.metrics[key] == pytest.approx(theirs.metrics[key], rel=0.01, abs=slack)


def test_rules_are_kept_once_per_kernel() -> None:
    (copy, _, _) = golden("h200_truth_details.csv.xz").kernels
    names = [rule.name for rule in copy.rules]
    assert "SOLBottleneck" in names
    assert all(rule.kind in ("OPT", "INF", "WRN") and rule.text for rule in copy.rules)
    assert len(set(copy.rules)) == len(copy.rules)
    assert any(rule.estimated_speedup_pct for rule in copy.rules)


def test_nvtx_columns_and_program_output() -> None:
    profile = golden("h200_nvtx.csv")
    assert [(k.name, k.launches) for k in profile.kernels] == [
        ("void scale<float>(T1 *, T1, int)", 2),
        ("add(float *, const float *, int)", 2),
    ]
    assert profile.kernels[0].metrics["dram_bytes_read"] > 0
    assert profile.warnings == ("not available in any launch (n/a): bogus__metric.sum.",)


def test_two_processes_and_an_error_banner() -> None:
    profile = golden("h200_two_processes_error.csv")
    assert [k.launches for k in profile.kernels] == [4, 4]
    assert "The application returned an error code (1)" in profile.warnings[0]


def test_all_details_and_instances_agree_with_the_report() -> None:
    report = golden("h200_scale_add.ncu-rep.xz")
    details = golden("h200_scale_add_details_all.csv.xz")
    instances = golden("h200_scale_add_raw_instances.csv.xz")
    for page in (details, instances):
        for ours, theirs in zip(page.kernels, report.kernels, strict=True):
            assert ours.identity == theirs.identity
            assert ours.avg_duration_us == pytest.approx(theirs.avg_duration_us, rel=0.01)
            for key in ours.metrics.keys() & theirs.metrics.keys():
                assert ours.metrics[key] == pytest.approx(theirs.metrics[key], rel=0.01, abs=0.01)


def test_suffix_does_not_matter(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "h200_decode_metrics.csv.xz", tmp_path / "decode.txt")
    found = read_capture(tmp_path / "decode.txt")
    assert_same_kernels(found, golden("h200_decode_metrics.csv.xz"))
    plain = read_text(tmp_path, golden_bytes("h200_decode_metrics.csv.xz"))
    assert_same_kernels(plain, found)
