"""What moved, how well it was packed, and what the instructions were."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_compass.records.counters import SECTOR_BYTES
from kernel_compass.units import MIB

WARP_THREADS = 32
MIN_TRAFFIC_BYTES = MIB
"""Traffic under which a hit rate is noise."""
CONVERSIONS_PCT = 30.0
"""Share of XU's work that must be conversions before XU counts as an unpacking unit."""


def footprint(
    metrics: Mapping[str, float], rules: Mapping[str, float], q: Mapping[str, float]
) -> dict[str, float]:
    """Traffic, coalescing, shared and local memory, atomics, instruction mix.

    Args:
        metrics: a kernel's metrics.
        rules: what ncu's checked rules state.
        q: the quantities so far (`duration_us`, pipe utilization).
    """
    return {
        **_traffic(metrics),
        **_coalescing(metrics, rules),
        **_shared_and_local(metrics, rules),
        **_atomics(metrics, q),
        **_mix(metrics, q),
    }


def _traffic(metrics: Mapping[str, float]) -> dict[str, float]:
    keys = ("dram_bytes_read", "dram_bytes_written", "dram_bytes", "l2_bytes_read", "l2_bytes")
    found = {key: metrics[key] for key in keys if key in metrics}
    traffic = found.get("l2_bytes", found.get("l2_bytes_read", math.inf))
    if traffic >= MIN_TRAFFIC_BYTES and "l2_hit_rate_pct" in metrics:
        found["l2_hit_rate_pct"] = metrics["l2_hit_rate_pct"]
    if "dram_bytes_read" in found and found.get("l2_bytes_read", 0.0) > 0:
        found["dram_reads_per_l2_read"] = found["dram_bytes_read"] / found["l2_bytes_read"]
    return found


def _coalescing(metrics: Mapping[str, float], rules: Mapping[str, float]) -> dict[str, float]:
    """Share of the global sectors that a packed access would not need, and their bytes."""
    total, excess = metrics.get("global_sectors"), metrics.get("global_sectors_excessive")
    if total and excess is not None:
        return {
            "global_excess_pct": 100.0 * excess / total,
            "global_sector_bytes": total * SECTOR_BYTES,
        }
    used = _bytes_used_per_sector(metrics)
    if used is not None:
        found = {"global_excess_pct": 100.0 * (1.0 - used / SECTOR_BYTES)}
        if "l2_bytes" in metrics:
            found["global_sector_bytes"] = metrics["l2_bytes"]
        return found
    return {k: rules[k] for k in ("global_excess_pct", "global_sector_bytes") if k in rules}


def _bytes_used_per_sector(metrics: Mapping[str, float]) -> float | None:
    """Over loads and stores, weighted by instructions; loads alone where these are unknown."""
    ops = ("load", "store")
    used = {op: metrics.get(f"global_{op}_bytes_per_sector", 0.0) for op in ops}
    used = {op: value for op, value in used.items() if value > 0}
    weights = {op: metrics.get(f"global_{op}_inst") for op in used}
    total = sum(w for w in weights.values() if w is not None)
    if used and None not in weights.values() and total > 0:
        return sum(value * (weights[op] or 0.0) for op, value in used.items()) / total
    return used.get("load", used.get("store"))


def _shared_and_local(metrics: Mapping[str, float], rules: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    total, excess = metrics.get("shared_wavefronts"), metrics.get("shared_wavefronts_excessive")
    if total and excess is not None:
        found["shared_excess_pct"] = 100.0 * excess / total
    elif "shared_excess_pct" in rules:
        found["shared_excess_pct"] = rules["shared_excess_pct"]
    executed = metrics.get("inst_executed")
    if not executed:
        return found
    local = [metrics[k] for k in ("local_load_inst", "local_store_inst") if k in metrics]
    if local:
        found["local_inst_pct"] = 100.0 * sum(local) / executed
    if "local_spill_requests" in metrics:
        found["spill_inst_pct"] = 100.0 * metrics["local_spill_requests"] / executed
    return found


def _atomics(metrics: Mapping[str, float], q: Mapping[str, float]) -> dict[str, float]:
    """Atomic operations at L2 (a sector for each lane and address): pace and share of sectors."""
    sectors = [metrics[k] for k in ("atomic_sectors", "reduction_sectors") if k in metrics]
    if not sectors or q.get("duration_us", 0.0) <= 0:
        return {}
    found = {"atomic_ops_per_us": sum(sectors) / q["duration_us"]}
    if metrics.get("l2_bytes", 0.0) > 0:
        share = 100.0 * sum(sectors) * SECTOR_BYTES / metrics["l2_bytes"]
        found["atomic_share_of_l2_pct"] = min(share, 100.0)
    return found


def _mix(metrics: Mapping[str, float], q: Mapping[str, float]) -> dict[str, float]:
    keys = ("threads_per_inst", "branch_efficiency_pct")
    found = {key: metrics[key] for key in keys if key in metrics}
    if metrics.get("inst_xu", 0.0) > 0 and "inst_conversion" in metrics:
        conversions = metrics["inst_conversion"] / WARP_THREADS
        found["conversions_of_xu_pct"] = min(100.0 * conversions / metrics["inst_xu"], 100.0)
    # Unpacking low-bit weights runs on ALU (shifts, masks, byte permutes) and XU (int to float);
    # exponentials run on XU too, so where conversions are counted they must be its work.
    units = ["alu_active_pct"]
    if found.get("conversions_of_xu_pct", 100.0) >= CONVERSIONS_PCT:
        units.append("xu_active_pct")
    unpack = [q[k] for k in units if k in q]
    if unpack:
        found["unpack_active_pct"] = max(unpack)
        if q.get("tensor_active_pct", 0.0) > 0:
            found["unpack_per_tensor"] = max(unpack) / q["tensor_active_pct"]
    return found
