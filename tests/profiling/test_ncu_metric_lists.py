"""The metric lists ask for what a chip has, and for nothing that makes ncu fail."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling import metric_lists
from kernel_compass.profiling.device_probe import Gpu, choose_metrics
from kernel_compass.profiling.metrics import BY_NAME, DEVICE_NAMES, DURATION_NAMES

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "ncu_metric_names.json").read_text(encoding="utf-8")
)
CHIPS: dict[str, list[str]] = GOLDEN["chips"]
CHIP_OF: dict[str, str] = GOLDEN["compute_capabilities"]
NOT_QUERIED = ("launch__", "device__", "profiler__", "sm__maximum_warps_per_active_cycle_pct")


@pytest.mark.parametrize("cc", sorted(CHIP_OF))
def test_chip_has_every_name(cc: str) -> None:
    """Base names as `ncu --query-metrics --chips` lists them."""
    has = set(CHIPS[CHIP_OF[cc]])
    asked = {n.split(".")[0] for n in metric_lists.metric_list(cc) if not n.startswith(NOT_QUERIED)}
    assert asked <= has


@pytest.mark.parametrize("cc", metric_lists.ARCHITECTURES)
def test_names_are_collectable_and_understood(cc: str) -> None:
    names = metric_lists.metric_list(cc)
    assert len(names) == len(set(names))
    for name in names:
        assert name in BY_NAME or name in DURATION_NAMES or name in DEVICE_NAMES.values()
        assert not re.match(r"derived__|sass__|memory_", name)
        assert "__sass_" not in name or name in metric_lists.SASS_METRICS
        launch = name.startswith(NOT_QUERIED)
        assert launch or re.search(r"\.(sum|avg|min|max|ratio|pct)\b", name), name


@pytest.mark.parametrize("cc", metric_lists.ARCHITECTURES)
def test_every_list_tells_what_a_diagnosis_needs(cc: str) -> None:
    names = metric_lists.metric_list(cc)
    keys = {BY_NAME[name][0].key for name in names if name in BY_NAME}
    assert keys >= {"sm_throughput_pct", "l2_throughput_pct", "l1_throughput_pct"}
    assert keys >= {"l2_bytes_read", "l2_hit_rate_pct", "achieved_occupancy_pct", "tensor_pipe_pct"}
    assert keys >= {"registers_per_thread", "waves_per_sm", "grid_size", "replay_passes"}
    assert keys >= {"stall_long_scoreboard", "stall_barrier", "pipe_fp16_pct"}
    assert set(DEVICE_NAMES.values()) <= set(names)
    integrated = cc in ("8.7", "11.0", "12.1")
    assert ("dram_bytes_read" in keys) != integrated
    assert ("occupancy_limit_barriers" in keys) == (float(cc) >= 9)


def test_residency_is_a_part_of_the_full_list() -> None:
    for cc in metric_lists.ARCHITECTURES:
        full, residency = metric_lists.metric_list(cc), metric_lists.residency_list(cc)
        assert set(metric_lists.one_pass_list(cc)) < set(residency) < set(full)
    assert metric_lists.one_pass_list("9.0")[:3] == (
        "gpu__time_duration.sum",
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
    )
    assert "dram__bytes_op_read.sum" in metric_lists.residency_list("12.0")


@pytest.mark.parametrize(
    ("cc", "nearest"), [("9.0", "9.0"), ("9.9", "9.0"), ("13.0", "12.1"), ("10.1", "10.0")]
)
def test_unknown_gpu_gets_the_nearest_older_list(cc: str, nearest: str) -> None:
    assert metric_lists.metric_list(cc) == metric_lists.metric_list(nearest)
    choice = choose_metrics([Gpu("a GPU", cc, "999")])
    assert choice.full == metric_lists.metric_list(nearest)
    assert bool(choice.warnings) == (cc != nearest)


def test_gpus_of_several_architectures_get_the_union() -> None:
    choice = choose_metrics([Gpu("A", "8.0", "1"), Gpu("B", "12.0", "1"), Gpu("C", "6.1", "1")])
    assert set(choice.full) == {*metric_lists.metric_list("8.0"), *metric_lists.metric_list("12.0")}
    (warning,) = choice.warnings
    assert "8.0, 12.0" in warning


def test_no_gpu_known_asks_for_everything() -> None:
    choice = choose_metrics([])
    assert set(metric_lists.metric_list("7.0")) < set(choice.full)
    assert set(metric_lists.metric_list("12.0")) < set(choice.full)
    assert choice.warnings


def test_gpus_before_volta_are_refused() -> None:
    with pytest.raises(ProfilingError, match=r"Quadro GP100 \(6\.0\)") as caught:
        choose_metrics([Gpu("Quadro GP100", "6.0", "535")])
    assert caught.value.cause is ProfilingCause.UNSUPPORTED_GPU


@pytest.mark.parametrize(
    ("version", "asked"),
    [("2025.3.1", True), ("2026.1.0", True), ("2025.2.1", False), ("2022.4", False), (None, False)],
)
def test_source_metrics_are_asked_of_releases_that_collect_them(
    version: str | None, asked: bool
) -> None:
    choice = choose_metrics([Gpu("NVIDIA H200", "9.0", "580")], version)
    assert (set(metric_lists.SOURCE_METRICS) <= set(choice.full)) is asked
    assert not set(metric_lists.SOURCE_METRICS) & set(choice.one_pass)
