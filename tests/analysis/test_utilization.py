"""Utilization and residency on counters that a recording does not show."""

from __future__ import annotations

from math import isfinite

import pytest

from kernel_compass.analysis.bottleneck import diagnose_kernel
from kernel_compass.analysis.footprint import footprint
from kernel_compass.analysis.ncu_rules import rule_quantities
from kernel_compass.analysis.residency import residency
from kernel_compass.analysis.utilization import busiest_pipe, stall_shares, utilization
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Flag, Limiter, Reuse
from kernel_compass.records.profile import (
    KernelProfile,
    Regime,
    RuleResult,
    Source,
    SourceFormat,
)

H200 = Device("NVIDIA H200", "9.0", 132, 60 << 20)


def source(regime: Regime = Regime.UNKNOWN, cache: str | None = None) -> Source:
    return Source(None, SourceFormat.NCU_CSV_WIDE, regime, cache)


def test_stall_percentages_are_shares_already() -> None:
    shares = stall_shares({"stall_barrier_pct": 2.0, "stall_long_scoreboard_pct": 2.2}, {})
    assert shares["stall_barrier_share_pct"] == 2.0


def test_a_few_stall_ratios_are_not_all_of_a_warps_time() -> None:
    two = {"stall_barrier": 0.10, "stall_long_scoreboard": 0.12}
    assert stall_shares(two, {}) == {}
    shares = stall_shares({**two, "warp_cycles_per_issue": 12.0}, {})
    assert shares["stall_barrier_share_pct"] == pytest.approx(0.83, abs=0.01)


def test_blackwells_tensor_pipe_counts_where_the_older_counter_reads_zero() -> None:
    q = utilization({"sm_throughput_pct": 91.0, "tensor_pipe_pct": 0.0, "pipe_tc_pct": 90.0}, {})
    assert busiest_pipe(q) == "tensor"
    assert q["compute_pct"] == 90.0


def test_elapsed_rates_are_not_scaled_again() -> None:
    half = {"sm_active_cycles": 5e5, "sm_elapsed_cycles": 1e6}
    q = utilization({**half, "l1_throughput_elapsed_pct": 80.0}, {})
    assert q["l1_throughput_pct"] == 80.0
    q = utilization({**half, "l1_throughput_pct": 80.0}, {})
    assert q["l1_throughput_pct"] == 40.0
    q = utilization({**half, "sm_throughput_pct": 82.0, "tensor_pipe_elapsed_pct": 80.0}, {})
    assert (q["tensor_pct"], q["tensor_active_pct"]) == (80.0, 100.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FMA is the highest-utilized pipeline (47.3%) based on elapsed cycles in the workload.",
         {"rule_pipe_fma_pct": 47.3}),
        ("FMA is the highest-utilized pipeline (80.0%) based on active cycles, taking into",
         {"rule_pipe_fma_active_pct": 80.0}),
        ("Tensor (FP) is the highest-utilized pipeline (61.0%) based on elapsed cycles in",
         {"rule_pipe_tensor_pct": 61.0}),
        ("All compute pipelines are under-utilized.", {}),
    ],
)  # fmt: skip
def test_the_pipe_rule_is_read_with_its_basis(text: str, expected: dict[str, float]) -> None:
    assert rule_quantities([RuleResult("HighPipeUtilization", "INF", text)]) == expected


def test_one_bad_store_among_good_loads_is_not_uncoalesced() -> None:
    metrics = {
        "global_load_bytes_per_sector": 32.0, "global_store_bytes_per_sector": 4.0,
        "global_load_inst": 1e6, "global_store_inst": 1.0, "l2_bytes": 1e9,
    }  # fmt: skip
    assert footprint(metrics, {}, {})["global_excess_pct"] < 0.1


def test_exponentials_are_no_unpacking_where_conversions_are_counted() -> None:
    busy_xu = {"xu_active_pct": 25.0, "alu_active_pct": 5.0, "tensor_active_pct": 6.0}
    counted = {"inst_xu": 1e6, "inst_conversion": 0.0}
    assert footprint(counted, {}, busy_xu)["unpack_active_pct"] == 5.0
    assert footprint({}, {}, busy_xu)["unpack_active_pct"] == 25.0


def test_a_measured_cold_capture_says_more_about_reuse_than_the_capacity() -> None:
    warm = {"dram_bytes_read": 1e5, "l2_bytes_read": 1.5e8, "dram_reads_per_l2_read": 7e-4}
    cold = {"dram_bytes_read": 1e8, "l2_bytes_read": 1.5e8, "dram_reads_per_l2_read": 0.67}
    assert residency(warm, source(cache="none"), H200).reuse is Reuse.WITHIN
    assert residency(warm, source(cache="none"), H200, cold).reuse is Reuse.BETWEEN


def test_bytes_that_fit_are_unknown_after_a_flush_however_often_they_were_read() -> None:
    tiles = {"dram_bytes_read": 3e7, "l2_bytes_read": 1.2e8, "dram_reads_per_l2_read": 0.25}
    assert residency(tiles, source(Regime.COLD, "all"), H200).flag is Flag.RESIDENCY_UNKNOWN
    in_place = residency(tiles, source(cache="none"), H200)
    assert in_place.flag is None
    assert "part of them" in in_place.evidence[0].meaning


def test_an_unknown_l2_size_is_said_to_be_assumed() -> None:
    cold = {"dram_bytes_read": 1.68e7, "l2_bytes_read": 1.7e7, "dram_reads_per_l2_read": 0.99}
    found = residency(cold, source(cache="all"), Device(compute_capability="9.0"))
    assert found.flag is Flag.RESIDENCY_UNKNOWN
    assert "smallest of this architecture" in found.evidence[0].meaning
    assert residency(cold, source(cache="all"), None).flag is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_no_numbers_are_missing(odd: float) -> None:
    known = {"sm_throughput_pct": 12.0, "dram_throughput_pct": 80.0, "l2_throughput_pct": 40.0}
    names = ("waves_per_sm", "sm_active_cycles", "sm_elapsed_cycles", "l1_throughput_pct")
    kernel = KernelProfile("k", None, None, 0, 1, None, {**known, **dict.fromkeys(names, odd)})
    found = diagnose_kernel(kernel, source(), H200)
    assert found.limiter is Limiter.DRAM_BOUND
    assert all(isfinite(e.value) for e in found.evidence)
