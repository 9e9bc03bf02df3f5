"""The numbers that the rules look at, derived from one kernel's metrics.

Rates whose traffic is negligible are left out here, once: a hit rate over a handful of sectors or
an L1 throughput over a few hundred active cycles can read 190 % or 550 % and decides nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from kernel_compass.analysis.ncu_rules import rule_quantities
from kernel_compass.records.metrics import OCCUPANCY_LIMITS, PIPES, STALL_REASONS, pipe_key
from kernel_compass.records.profile import KernelProfile
from kernel_compass.units import MIB

ARITHMETIC_PIPES = ("tensor", "fma", "fmaheavy", "fp64", "alu", "xu", "fp16")
"""Pipes whose saturation makes a kernel compute-bound; LSU, ADU and CBU serve memory, barriers
and branches."""

WARP_THREADS = 32
OTHER_PIPES = ("lsu", "adu", "cbu", "tex", "tma", "uniform")
SECTOR_BYTES = 32
MIN_TRAFFIC_BYTES = MIB
"""Traffic under which a cache or DRAM rate is noise."""
MIN_ACTIVE_CYCLES = 1000
"""Mean active cycles an SM must have before rates per active cycle mean anything (about 0.5 us)."""
DEPENDENCY_STALLS = ("long_scoreboard", "short_scoreboard", "wait", "gmma")
"""Warp states of waiting for an earlier instruction's result."""


def quantities(kernel: KernelProfile) -> dict[str, float]:
    """All derived quantities that this kernel's metrics allow; what is unknown is absent.

    Percentages are 0-100 of the elapsed time unless named `_active_pct`.
    """
    metrics = kernel.metrics
    q: dict[str, float] = {}
    if kernel.duration_stats is not None:
        q["duration_us"] = kernel.duration_stats.mean
    _activity(metrics, q)
    rules = rule_quantities(kernel.rules)
    _stalls(metrics, rules, q)
    _pipes(metrics, rules, q)
    _levels(metrics, q)
    _traffic(metrics, q)
    _launch_shape(kernel, q)
    _access_patterns(metrics, rules, q)
    _instruction_mix(metrics, q)
    q["low_bit_name"] = float(bool(_LOW_BIT_NAME.search(kernel.name)))
    q["attention_name"] = float(bool(_ATTENTION_NAME.search(kernel.name)))
    return q


_LOW_BIT_NAME = re.compile(
    r"w[48]a\d|woq|gptq|awq|marlin|machete|dequant|_u?int[48](?![\d])|u?int[48]_|nf4|fp4"
    r"|(?<![a-z])q[48](?![a-z\d])",
    re.IGNORECASE,
)
"""Names of low-bit weight kernels; CUDA's vector type `int4` alone is none."""
_ATTENTION_NAME = re.compile(r"att(?:entio)?n|flash|fmha|sdpa|softmax", re.IGNORECASE)


def _copy(metrics: Mapping[str, float], q: dict[str, float], *keys: str) -> None:
    q.update({key: metrics[key] for key in keys if key in metrics})


def _activity(metrics: Mapping[str, float], q: dict[str, float]) -> None:
    """Share of the elapsed time that the average SM had work."""
    active, elapsed = metrics.get("sm_active_cycles"), metrics.get("sm_elapsed_cycles")
    if active is not None and elapsed:
        q["sm_active_cycles"] = active
        q["sm_active_share"] = min(active / elapsed, 1.0)


def _pipes(metrics: Mapping[str, float], rules: Mapping[str, float], q: dict[str, float]) -> None:
    """Pipe and issue utilization over the elapsed time, the busiest arithmetic pipe."""
    share = q.get("sm_active_share", 1.0)
    for pipe in PIPES:
        key = pipe_key(pipe)
        if key in metrics:
            q[f"{pipe}_active_pct"] = metrics[key]
            q[f"{pipe}_pct"] = metrics[key] * share
        elif f"rule_pipe_{pipe}_pct" in rules:
            q[f"{pipe}_pct"] = rules[f"rule_pipe_{pipe}_pct"]
            q[f"{pipe}_active_pct"] = rules[f"rule_pipe_{pipe}_pct"] / max(share, 0.01)
    if "issue_active_pct" in metrics:
        q["issue_active_pct"] = metrics["issue_active_pct"]
        q["issue_pct"] = metrics["issue_active_pct"] * share
    busiest = busiest_pipe(q)
    if busiest is not None:
        q["arithmetic_pipe_pct"] = q[f"{busiest}_pct"]
        q["arithmetic_pipe_active_pct"] = q[f"{busiest}_active_pct"]


def busiest_pipe(q: Mapping[str, float]) -> str | None:
    """The busiest arithmetic pipe among the quantities, `None` when none is known."""
    known = [pipe for pipe in ARITHMETIC_PIPES if f"{pipe}_pct" in q]
    return max(known, key=lambda pipe: q[f"{pipe}_pct"]) if known else None


def _levels(metrics: Mapping[str, float], q: dict[str, float]) -> None:
    """Throughput per level, elapsed time; `busiest_level_pct` over the levels that count."""
    _copy(metrics, q, "dram_throughput_pct", "l2_throughput_pct", "sm_throughput_pct")
    if "l1_throughput_pct" in metrics and q.get("sm_active_cycles", math.inf) >= MIN_ACTIVE_CYCLES:
        q["l1_throughput_pct"] = metrics["l1_throughput_pct"] * q.get("sm_active_share", 1.0)
    if "sm_throughput_pct" in q:
        q["compute_pct"] = _arithmetic_share(metrics, q)
    levels = ("compute_pct", "dram_throughput_pct", "l2_throughput_pct", "l1_throughput_pct")
    known = [q[key] for key in levels if key in q]
    if known:
        q["busiest_level_pct"] = max(known)
    if "compute_pct" in q:
        q["compute_over_dram_pct"] = q["compute_pct"] - q.get("dram_throughput_pct", 0.0)
        q["compute_over_l1_pct"] = q["compute_pct"] - q.get("l1_throughput_pct", 0.0)
        q["compute_over_l2_pct"] = q["compute_pct"] - q.get("l2_throughput_pct", 0.0)
    if "l2_throughput_pct" in q or "l1_throughput_pct" in q:
        q["l2_over_l1_pct"] = q.get("l2_throughput_pct", 0.0) - q.get("l1_throughput_pct", 0.0)


def _arithmetic_share(metrics: Mapping[str, float], q: dict[str, float]) -> float:
    """How much of the SM throughput is arithmetic.

    SM throughput is the busiest of all SM units, load/store and barrier unit included. Pipe
    counters say whether it is arithmetic; what neither they nor the memory pipes explain is that
    of an arithmetic pipe without a counter. A details page has no pipe counters, and ncu's pipe
    rule there never names XU: what no named pipe, the issue slots, L1 or barriers explain is XU's.
    """
    sm = q["sm_throughput_pct"]
    known = [q[key] for key in ("arithmetic_pipe_pct", "issue_pct") if key in q]
    if not known:
        return sm
    explained = min(sm, max(known))
    if any(pipe_key(pipe) in metrics for pipe in ARITHMETIC_PIPES):
        other = [q.get(f"{pipe}_pct", 0.0) for pipe in OTHER_PIPES]
        other.append(q.get("l1_throughput_pct", 0.0))
        all_known = all(pipe_key(pipe) in metrics for pipe in ("lsu", "adu", "xu", "alu"))
        unexplained = sm - max(explained, *other) >= UNEXPLAINED_PCT
        return sm if all_known and unexplained else explained
    elsewhere = max(
        q.get("l1_throughput_pct", 0.0) * 2.0, q.get("stall_barrier_share_pct", 0.0) * 2
    )
    if sm - explained < UNEXPLAINED_PCT or elsewhere >= sm:
        return explained
    if "stall_mio_throttle_share_pct" in q or "stall_short_scoreboard_share_pct" in q:
        q["xu_pct"] = sm
        q["xu_active_pct"] = min(sm / max(q.get("sm_active_share", 1.0), 0.01), 100.0)
    return sm


UNEXPLAINED_PCT = 20.0
"""SM throughput beyond the known pipes that counts as another pipe's."""


def _traffic(metrics: Mapping[str, float], q: dict[str, float]) -> None:
    _copy(metrics, q, "dram_bytes_read", "dram_bytes_written", "dram_bytes")
    _copy(metrics, q, "l2_bytes_read", "l2_bytes")
    if q.get("l2_bytes", q.get("l2_bytes_read", math.inf)) >= MIN_TRAFFIC_BYTES:
        _copy(metrics, q, "l2_hit_rate_pct")
    if "dram_bytes_read" in q and q.get("l2_bytes_read", 0.0) > 0:
        q["dram_reads_per_l2_read"] = q["dram_bytes_read"] / q["l2_bytes_read"]


def _stalls(metrics: Mapping[str, float], rules: Mapping[str, float], q: dict[str, float]) -> None:
    """Share of warp time per state, from the counters or from ncu's stall rule."""
    for suffix in ("", "_pct"):
        found = {
            r: metrics[f"stall_{r}{suffix}"]
            for r in STALL_REASONS
            if f"stall_{r}{suffix}" in metrics
        }
        total = sum(found.values())
        if len(found) > 1 and total > 0:
            for reason, value in found.items():
                q[f"stall_{reason}_share_pct"] = 100.0 * value / total
            break
    else:
        q.update({key: value for key, value in rules.items() if key.startswith("stall_")})
    dependency = [q[k] for r in DEPENDENCY_STALLS if (k := f"stall_{r}_share_pct") in q]
    if dependency:
        q["stall_dependency_share_pct"] = min(sum(dependency), 100.0)


def _launch_shape(kernel: KernelProfile, q: dict[str, float]) -> None:
    """Occupancy, waves, and what an uneven last wave cost."""
    metrics = kernel.metrics
    _copy(metrics, q, "achieved_occupancy_pct", "theoretical_occupancy_pct", "waves_per_sm")
    _copy(metrics, q, "registers_per_thread", "sm_count")
    _smallest_limit(metrics, q)
    if "grid_size" in metrics:
        q["grid_size"] = metrics["grid_size"]
    elif kernel.grid is not None:
        q["grid_size"] = float(math.prod(kernel.grid))
    if "grid_size" in q and q.get("sm_count", 0.0) > 0:
        q["blocks_per_sm"] = q["grid_size"] / q["sm_count"]
    if kernel.block is not None:
        q["block_size"] = float(math.prod(kernel.block))
    waves = _exact_waves(metrics, q)
    if waves > 0:
        q["waves"] = waves
        q["wave_rounding_pct"] = 100.0 * (math.ceil(waves - 1e-9) / waves - 1.0)
    if "sm_active_share" in q:
        q["sm_idle_pct"] = 100.0 * (1.0 - q["sm_active_share"])
        elapsed = metrics["sm_elapsed_cycles"]
        overhead = 100.0 * LAUNCH_OVERHEAD_CYCLES / elapsed
        q["sm_idle_beyond_launch_pct"] = max(q["sm_idle_pct"] - overhead, 0.0)


def _smallest_limit(metrics: Mapping[str, float], q: dict[str, float]) -> None:
    """`limited_by_<resource>` = 1 for the resources with the smallest block limit."""
    limits = {r: metrics[k] for r in OCCUPANCY_LIMITS if (k := f"occupancy_limit_{r}") in metrics}
    for resource, limit in limits.items():
        q[f"limited_by_{resource}"] = float(limit == min(limits.values()))


def _exact_waves(metrics: Mapping[str, float], q: Mapping[str, float]) -> float:
    """Waves from the block limits; ncu prints two decimals, which hides one block too many."""
    limits = [
        metrics[k] for r in OCCUPANCY_LIMITS if metrics.get(k := f"occupancy_limit_{r}", 0) > 0
    ]
    if "blocks_per_sm" in q and limits and metrics.get("cluster_size", 0) <= 1:
        return q["blocks_per_sm"] / min(limits)
    return q.get("waves_per_sm", 0.0)


LAUNCH_OVERHEAD_CYCLES = 3000.0
"""Elapsed cycles of an empty kernel (measured: 2,660-3,150 for one block of 32 threads, H200)."""


def _access_patterns(
    metrics: Mapping[str, float], rules: Mapping[str, float], q: dict[str, float]
) -> None:
    _coalescing(metrics, rules, q)
    total = metrics.get("shared_wavefronts")
    excess = metrics.get("shared_wavefronts_excessive")
    if total and excess is not None:
        q["shared_excess_pct"] = 100.0 * excess / total
    elif "shared_excess_pct" in rules:
        q["shared_excess_pct"] = rules["shared_excess_pct"]
    local = [metrics[k] for k in ("local_load_inst", "local_store_inst") if k in metrics]
    if local and metrics.get("inst_executed"):
        q["local_inst_pct"] = 100.0 * sum(local) / metrics["inst_executed"]
    if "local_spill_requests" in metrics and metrics.get("inst_executed"):
        q["spill_inst_pct"] = 100.0 * metrics["local_spill_requests"] / metrics["inst_executed"]
    _atomics(metrics, q)


def _coalescing(
    metrics: Mapping[str, float], rules: Mapping[str, float], q: dict[str, float]
) -> None:
    total = metrics.get("global_sectors")
    excess = metrics.get("global_sectors_excessive")
    if total and excess is not None:
        q["global_excess_pct"] = 100.0 * excess / total
        q["global_sector_bytes"] = total * SECTOR_BYTES
        return
    used = [
        metrics[key]
        for key in ("global_load_bytes_per_sector", "global_store_bytes_per_sector")
        if metrics.get(key, 0.0) > 0
    ]
    if used:
        q["global_excess_pct"] = 100.0 * (1.0 - min(used) / SECTOR_BYTES)
        if "l2_bytes" in metrics:
            q["global_sector_bytes"] = metrics["l2_bytes"]
    elif "global_excess_pct" in rules:
        q["global_excess_pct"] = rules["global_excess_pct"]
        q["global_sector_bytes"] = rules["global_sector_bytes"]


def _atomics(metrics: Mapping[str, float], q: dict[str, float]) -> None:
    """Atomic operations at L2 (a sector for each lane and address): pace and share."""
    found = [metrics[k] for k in ("atomic_sectors", "reduction_sectors") if k in metrics]
    if found and q.get("duration_us", 0.0) > 0:
        q["atomic_ops_per_us"] = sum(found) / q["duration_us"]
        if metrics.get("l2_bytes", 0.0) > 0:
            share = sum(found) * SECTOR_BYTES / metrics["l2_bytes"]
            q["atomic_share_of_l2_pct"] = min(100.0 * share, 100.0)


def _instruction_mix(metrics: Mapping[str, float], q: dict[str, float]) -> None:
    _copy(metrics, q, "threads_per_inst", "branch_efficiency_pct", "divergent_branches")
    _copy(metrics, q, "inst_executed")
    branches = metrics.get("branch_inst_executed")
    if branches and "divergent_branches" in metrics:
        q["divergent_branches_per_branch"] = metrics["divergent_branches"] / branches
    if metrics.get("inst_xu", 0.0) > 0 and "inst_conversion" in metrics:
        conversions = metrics["inst_conversion"] / WARP_THREADS
        q["conversions_of_xu_pct"] = min(100.0 * conversions / metrics["inst_xu"], 100.0)
    # Unpacking low-bit weights runs on ALU (shifts, masks, byte permutes) and XU (int to float).
    unpack = [q[k] for k in ("alu_active_pct", "xu_active_pct") if k in q]
    if unpack:
        q["unpack_active_pct"] = max(unpack)
        if q.get("tensor_active_pct", 0.0) > 0:
            q["unpack_per_tensor"] = max(unpack) / q["tensor_active_pct"]
