"""The rules as data: complete, reasoned, with margins that the recordings give."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernel_compass.analysis.bottleneck import diagnose_kernel
from kernel_compass.analysis.quantities import quantities
from kernel_compass.analysis.rule_margins import MARGINS
from kernel_compass.analysis.rules import FLAG_RULES, LIMITER_RULES, FlagRule, LimiterRule
from kernel_compass.records.diagnosis import Flag, Limiter
from kernel_compass.records.profile import DurationStats, KernelProfile, Source, SourceFormat

ROOT = Path(__file__).resolve().parents[2]

RULES: tuple[LimiterRule | FlagRule, ...] = (*LIMITER_RULES, *FLAG_RULES)
SOURCE = Source(None, SourceFormat.NCU_RUN)


def kernel(duration_us: float | None = 100.0, **metrics: float) -> KernelProfile:
    stats = None if duration_us is None else DurationStats(*([duration_us] * 5))
    return KernelProfile("k", (132, 1, 1), (256, 1, 1), 0, 1, stats, metrics)


def diagnose(k: KernelProfile) -> tuple[Limiter, set[Flag]]:
    diagnosis = diagnose_kernel(k, SOURCE, None)
    return diagnosis.limiter, set(diagnosis.flags)


def test_names_are_unique_and_reasons_given() -> None:
    assert len({r.name for r in RULES}) == len(RULES)
    assert all(len(r.reason) > 20 for r in RULES)


def test_every_flag_of_the_vocabulary_has_a_rule_or_is_residency() -> None:
    elsewhere = {Flag.L2_RESIDENT, Flag.RESIDENCY_UNKNOWN, Flag.TENSOR_CORES_IDLE}
    assert {r.flag for r in FLAG_RULES} | elsewhere == set(Flag)
    assert {r.limiter for r in LIMITER_RULES} | {Limiter.UNCLASSIFIED} == set(Limiter)


def test_the_margins_in_the_table_are_those_of_the_recordings() -> None:
    from rule_margins import recorded

    assert recorded() == MARGINS


NARROW = {("dram_busy", "dram_throughput_pct"): "a strided column read sits at 60.1 % of DRAM"}
"""Thresholds with a recorded kernel close by, and which: their verdicts carry low confidence."""


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_no_recorded_kernel_sits_within_a_fiftieth_of_a_percent_threshold(
    rule: LimiterRule | FlagRule,
) -> None:
    for condition in rule.conditions:
        if condition.unit != "%" or condition.threshold in (0.0, -10.0, 99.9):
            continue
        if (rule.name, condition.quantity) in NARROW:
            continue
        for value in rule.margins[f"{condition.quantity} {condition.op}"]:
            if value is not None:
                assert abs(value - condition.threshold) >= 0.02 * condition.threshold


IDLE = {"sm_throughput_pct": 20.0, "dram_throughput_pct": 10.0, "l2_throughput_pct": 15.0}
CASES: dict[str, tuple[KernelProfile, Limiter | Flag, dict[str, float]]] = {
    # rule -> (a kernel on which it decides, what it concludes, a change that undoes it)
    "short_and_idle": (
        kernel(3.0, **IDLE),
        Limiter.LAUNCH_BOUND,
        {"dram_throughput_pct": 85.0},
    ),
    "short_and_nothing_known_busy": (
        kernel(3.0, sm_throughput_pct=2.0, dram_throughput_pct=0.1),
        Limiter.LAUNCH_BOUND,
        {"dram_throughput_pct": 85.0},
    ),
    "arithmetic_busy": (
        kernel(sm_throughput_pct=90.0, pipe_fma_pct=88.0, dram_throughput_pct=5.0),
        Limiter.COMPUTE_BOUND,
        {"pipe_fma_pct": 20.0},
    ),
    "dram_busy": (
        kernel(sm_throughput_pct=10.0, dram_throughput_pct=75.0, l2_throughput_pct=90.0),
        Limiter.DRAM_BOUND,
        {"dram_throughput_pct": 50.0},
    ),
    "l1_busy": (
        kernel(
            sm_throughput_pct=95.0, pipe_fma_pct=5.0, l1_throughput_pct=95.0, l2_throughput_pct=3.0
        ),
        Limiter.L1_BOUND,
        {"l1_throughput_pct": 40.0},
    ),
    "l2_busy": (
        kernel(sm_throughput_pct=10.0, dram_throughput_pct=20.0, l2_throughput_pct=80.0),
        Limiter.L2_BOUND,
        {"l2_throughput_pct": 30.0},
    ),
    "arithmetic_busy_while_active": (
        kernel(
            sm_throughput_pct=50.0, issue_active_pct=99.0, pipe_fma_pct=95.0,
            sm_active_cycles=5e5, sm_elapsed_cycles=1e6, dram_throughput_pct=1.0,
            l2_throughput_pct=1.0,
        ),
        Limiter.COMPUTE_BOUND,
        {"issue_active_pct": 40.0},
    ),
    "waiting_at_barriers": (
        kernel(
            **IDLE, issue_active_pct=58.0, warp_cycles_per_issue=10.0, stall_barrier=6.0
        ),
        Limiter.LATENCY_BOUND,
        {"stall_barrier": 0.0},
    ),
    "few_instructions_issued": (
        kernel(**IDLE, issue_active_pct=12.0),
        Limiter.LATENCY_BOUND,
        {"issue_active_pct": 70.0},
    ),
    "waiting_for_results": (
        kernel(
            **IDLE, issue_active_pct=58.0, warp_cycles_per_issue=10.0, stall_long_scoreboard=8.0
        ),
        Limiter.LATENCY_BOUND,
        {"stall_long_scoreboard": 0.1},
    ),
    "few_warps": (
        kernel(**IDLE, achieved_occupancy_pct=10.0),
        Limiter.LATENCY_BOUND,
        {"achieved_occupancy_pct": 80.0},
    ),
    "few_blocks": (
        kernel(**IDLE, sm_count=200.0),
        Limiter.LATENCY_BOUND,
        {"sm_count": 100.0},
    ),
    "low_occupancy": (
        kernel(**IDLE, achieved_occupancy_pct=10.0),
        Flag.LOW_OCCUPANCY,
        {"achieved_occupancy_pct": 80.0},
    ),
    **{
        f"occupancy_limited_by_{r}": (
            kernel(
                **IDLE, achieved_occupancy_pct=10.0, theoretical_occupancy_pct=12.5,
                **{f"occupancy_limit_{x}": 1.0 if x == r else 8.0
                   for x in ("registers", "shared_memory", "blocks", "warps", "barriers")},
            ),
            Flag(f"occupancy_limited_by_{r}"),
            {f"occupancy_limit_{r}": 9.0},
        )
        for r in ("registers", "shared_memory", "blocks", "warps", "barriers")
    },
    "uncoalesced": (
        kernel(**IDLE, global_sectors=1e6, global_sectors_excessive=8e5),
        Flag.UNCOALESCED,
        {"global_sectors_excessive": 1e4},
    ),
    "bank_conflicts": (
        kernel(
            **IDLE, l1_throughput_pct=95.0, shared_wavefronts=1e6, shared_wavefronts_excessive=7e5
        ),
        Flag.BANK_CONFLICTS,
        {"shared_wavefronts_excessive": 0.0},
    ),
    "local_memory_instructions": (
        kernel(**IDLE, local_load_inst=5e5, local_store_inst=5e5, inst_executed=1e7),
        Flag.REGISTER_SPILLS,
        {"local_load_inst": 0.0, "local_store_inst": 10.0},
    ),
    "spill_requests": (
        kernel(**IDLE, local_spill_requests=5e5, inst_executed=1e7),
        Flag.REGISTER_SPILLS,
        {"local_spill_requests": 768.0},
    ),
    "tail_effect": (
        kernel(
            **IDLE, sm_count=132.0, waves_per_sm=1.01, sm_active_cycles=5e5, sm_elapsed_cycles=1e6
        ),
        Flag.TAIL_EFFECT,
        {"sm_active_cycles": 9.8e5},
    ),
    "small_grid": (kernel(**IDLE, sm_count=200.0), Flag.SMALL_GRID, {"sm_count": 132.0}),
    "atomic_contention": (
        kernel(
            **IDLE, issue_active_pct=1.0, reduction_sectors=1e5, l2_bytes=3.3e6,
            dram_bytes_read=0.0, l2_bytes_read=1e5,
        ),
        Flag.ATOMIC_CONTENTION,
        {"reduction_sectors": 100.0},
    ),
    "barrier_stalls": (
        kernel(**IDLE, warp_cycles_per_issue=10.0, stall_barrier=6.0),
        Flag.BARRIER_STALLS,
        {"stall_barrier": 0.5},
    ),
    "divergence": (
        kernel(**IDLE, threads_per_inst=9.0, branch_efficiency_pct=80.0),
        Flag.DIVERGENCE,
        {"branch_efficiency_pct": 100.0},
    ),
    "dequant_on_xu": (
        kernel(
            **IDLE, issue_active_pct=30.0, pipe_xu_pct=50.0, inst_conversion=3.2e7, inst_xu=1e6
        ),
        Flag.DEQUANT_BOUND,
        {"inst_conversion": 1e5},
    ),
    "dequant_by_name": (
        dataclasses.replace(
            kernel(**IDLE, issue_active_pct=30.0, pipe_alu_pct=50.0), name="gemv_w4a16"
        ),
        Flag.DEQUANT_BOUND,
        {"pipe_alu_pct": 7.0},
    ),
    "dequant_beside_tensor": (
        kernel(**IDLE, issue_active_pct=30.0, pipe_alu_pct=50.0, tensor_pipe_pct=8.0),
        Flag.DEQUANT_BOUND,
        {"pipe_alu_pct": 7.0},
    ),
}  # fmt: skip


def test_every_rule_has_a_case() -> None:
    assert {r.name for r in RULES} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_decides_and_its_opposite_does_not(name: str) -> None:
    subject, conclusion, change = CASES[name]
    rule = next(r for r in RULES if r.name == name)
    other = dataclasses.replace(subject, metrics={**subject.metrics, **change})
    assert all(c.holds(quantities(subject)) for c in rule.conditions)
    assert not all(c.holds(quantities(other)) for c in rule.conditions)
    limiter, flags = diagnose(subject)
    assert conclusion is limiter or conclusion in flags
    limiter, flags = diagnose(other)
    assert conclusion is not limiter
    assert conclusion not in flags


def test_a_kernel_without_throughputs_is_unclassified_and_says_so() -> None:
    diagnosis = diagnose_kernel(kernel(24.0, registers_per_thread=40.0), SOURCE, None)
    assert diagnosis.limiter is Limiter.UNCLASSIFIED
    assert diagnosis.confidence < 0.1
    assert "not collected" in diagnosis.evidence[0].meaning


def test_noise_of_a_tiny_kernel_decides_nothing() -> None:
    tiny = kernel(
        1.5, sm_throughput_pct=0.1, l1_throughput_pct=553.0, sm_active_cycles=1.3,
        sm_elapsed_cycles=3000.0, dram_throughput_pct=0.0, l2_throughput_pct=0.5,
        l2_hit_rate_pct=192.0, l2_bytes=128.0,
    )  # fmt: skip
    limiter, _ = diagnose(tiny)
    assert limiter is Limiter.LAUNCH_BOUND
    assert "l2_hit_rate_pct" not in quantities(tiny)


@pytest.mark.parametrize("name", ["vec<int4>", "copy_float4", "void scan(uint4 *)"])
def test_vector_types_are_no_low_bit_weights(name: str) -> None:
    busy = kernel(**IDLE, issue_active_pct=30.0, pipe_alu_pct=50.0)
    assert Flag.DEQUANT_BOUND not in diagnose(dataclasses.replace(busy, name=name))[1]


def test_the_exponentials_of_attention_are_no_dequantization() -> None:
    mixed = kernel(**IDLE, issue_active_pct=30.0, pipe_xu_pct=20.0, tensor_pipe_pct=8.0)
    assert Flag.DEQUANT_BOUND in diagnose(mixed)[1]
    attention = dataclasses.replace(mixed, name="flash_fwd_kernel")
    assert Flag.DEQUANT_BOUND not in diagnose(attention)[1]


def test_nothing_dominant_is_unclassified() -> None:
    mixed = kernel(
        sm_throughput_pct=55.0, dram_throughput_pct=50.0, l2_throughput_pct=52.0,
        issue_active_pct=70.0, achieved_occupancy_pct=80.0, sm_count=66.0,
        warp_cycles_per_issue=10.0, stall_long_scoreboard=1.0, stall_not_selected=2.0,
    )  # fmt: skip
    assert diagnose(mixed)[0] is Limiter.UNCLASSIFIED


def test_launch_bound_from_counters_stays_a_suspicion() -> None:
    assert diagnose_kernel(CASES["short_and_idle"][0], SOURCE, None).confidence <= 0.7
