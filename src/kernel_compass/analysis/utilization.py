"""How busy the levels and pipes are over the elapsed time, and what warps wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernel_compass.records.metrics import PIPES, STALL_REASONS, pipe_key

ARITHMETIC_PIPES = ("tensor", "fma", "fp64", "alu", "xu", "fp16")
"""Pipes whose saturation makes a kernel compute-bound; LSU, ADU and CBU serve memory, barriers
and branches."""
PIPE_PARTS: Mapping[str, tuple[str, ...]] = {"fma": ("fmaheavy",), "tensor": ("tc",)}
"""Pipes whose busier part counts: integer multiplies run on half of FMA, Blackwell's MMA on TC."""
_OTHER_PIPES = ("lsu", "adu", "cbu", "tex", "tma", "uniform")

BUSY_PCT = 60.0
"""A level at or over this share of its peak is busy (ncu's own latency threshold)."""
L1_BUSY_PCT = 70.0
"""The same for L1: well-fed GEMMs reach 45 to 69 %, kernels bound by it over 85 % (recorded)."""
UNKNOWN_LEVEL_PCT = 80.0
"""What a level that the capture lacks may be at when another one claims to be the busiest."""
UNEXPLAINED_PCT = 20.0
"""SM throughput beyond the known pipes that counts as another pipe's."""
MIN_ACTIVE_CYCLES = 1000.0
"""Mean active cycles an SM must have before rates per active cycle mean anything (about 0.5 us)."""
PLAUSIBLE_PCT = 105.0
"""A level above this is the noise of a small denominator."""
DEPENDENCY_STALLS = ("long_scoreboard", "short_scoreboard", "wait", "gmma")
"""Warp states of waiting for an earlier instruction's result."""
_ENOUGH_STALLS = 8
"""States a capture must carry before their sum stands for all of a warp's time."""


def utilization(metrics: Mapping[str, float], rules: Mapping[str, float]) -> dict[str, float]:
    """Activity, stall shares, pipes and levels.

    Args:
        metrics: a kernel's metrics.
        rules: what ncu's checked rules state (`analysis.ncu_rules`).
    """
    q = _activity(metrics)
    q |= stall_shares(metrics, rules)
    q |= _pipes(metrics, rules, q.get("sm_active_share", 1.0))
    q |= _levels(metrics, q)
    if "sm_throughput_pct" in q:
        q |= _arithmetic(metrics, q)
    return q | _comparisons(metrics, q)


def busiest_pipe(q: Mapping[str, float]) -> str | None:
    """The busiest arithmetic pipe among the quantities, `None` when none is known."""
    known = [pipe for pipe in ARITHMETIC_PIPES if f"{pipe}_pct" in q]
    return max(known, key=lambda pipe: q[f"{pipe}_pct"]) if known else None


def _activity(metrics: Mapping[str, float]) -> dict[str, float]:
    """Share of the elapsed time that the average SM had work."""
    active, elapsed = metrics.get("sm_active_cycles"), metrics.get("sm_elapsed_cycles")
    if active is None or not elapsed or elapsed < 0:
        return {}
    return {"sm_active_cycles": active, "sm_active_share": min(max(active / elapsed, 0.0), 1.0)}


def stall_shares(metrics: Mapping[str, float], rules: Mapping[str, float]) -> dict[str, float]:
    """Share of warp time per state: from percentages, from ratios, or from ncu's stall rule."""
    percent = {r: metrics[k] for r in STALL_REASONS if (k := f"stall_{r}_pct") in metrics}
    ratios = {r: metrics[k] for r in STALL_REASONS if (k := f"stall_{r}") in metrics}
    shares: dict[str, float] = {}
    if percent:
        shares = percent
    elif ratios:
        total = metrics.get("warp_cycles_per_issue", 0.0)
        if total <= 0 and len(ratios) >= _ENOUGH_STALLS:
            total = sum(ratios.values())
        if total > 0:
            shares = {r: min(100.0 * value / total, 100.0) for r, value in ratios.items()}
    found = {f"stall_{r}_share_pct": value for r, value in shares.items()}
    found = found or {key: value for key, value in rules.items() if key.startswith("stall_")}
    dependency = [found[k] for r in DEPENDENCY_STALLS if (k := f"stall_{r}_share_pct") in found]
    if dependency:
        found["stall_dependency_share_pct"] = min(sum(dependency), 100.0)
    return found


def _pipes(
    metrics: Mapping[str, float], rules: Mapping[str, float], share: float
) -> dict[str, float]:
    """Pipe and issue utilization, while active and over the elapsed time."""
    found: dict[str, float] = {}
    for pipe in PIPES:
        active, elapsed = metrics.get(pipe_key(pipe)), rules.get(f"rule_pipe_{pipe}_pct")
        if active is None and f"rule_pipe_{pipe}_active_pct" in rules:
            active = rules[f"rule_pipe_{pipe}_active_pct"]
        if active is None and pipe == "tensor":
            elapsed = metrics.get("tensor_pipe_elapsed_pct", elapsed)
        if active is not None:
            found[f"{pipe}_active_pct"], found[f"{pipe}_pct"] = active, active * share
        elif elapsed is not None:
            found[f"{pipe}_pct"] = elapsed
            found[f"{pipe}_active_pct"] = min(elapsed / max(share, 0.01), 100.0)
    for pipe, parts in PIPE_PARTS.items():
        for part in parts:
            for suffix in ("_pct", "_active_pct"):
                if part + suffix in found:
                    found[pipe + suffix] = max(found.get(pipe + suffix, 0.0), found[part + suffix])
    if "issue_active_pct" in metrics:
        found["issue_active_pct"] = metrics["issue_active_pct"]
        found["issue_pct"] = metrics["issue_active_pct"] * share
    return found


def _levels(metrics: Mapping[str, float], q: Mapping[str, float]) -> dict[str, float]:
    """SM, L1, L2 and DRAM throughput; L1, which ncu counts while active, scaled to the elapsed."""
    keys = ("dram_throughput_pct", "l2_throughput_pct", "sm_throughput_pct")
    found = {key: metrics[key] for key in (*keys, "memory_throughput_pct") if key in metrics}
    if "l1_throughput_elapsed_pct" in metrics:
        found["l1_throughput_pct"] = metrics["l1_throughput_elapsed_pct"]
    elif "l1_throughput_pct" in metrics and (
        q.get("sm_active_cycles", math.inf) >= MIN_ACTIVE_CYCLES
    ):
        found["l1_throughput_pct"] = metrics["l1_throughput_pct"] * q.get("sm_active_share", 1.0)
    if found.get("l1_throughput_pct", 0.0) > PLAUSIBLE_PCT:
        del found["l1_throughput_pct"]
    elif "l1_throughput_pct" not in found and q.get("sm_active_cycles", math.inf) < (
        MIN_ACTIVE_CYCLES
    ):
        found["l1_throughput_pct"] = 0.0  # SMs were hardly active: known to be idle
    return found


def _arithmetic(metrics: Mapping[str, float], q: Mapping[str, float]) -> dict[str, float]:
    """`compute_pct`: how much of the SM throughput is arithmetic; `compute_known` where backed.

    SM throughput is the busiest of all SM units, load/store and barrier unit included. Pipe
    counters say whether it is arithmetic; what neither they nor the memory pipes explain is that
    of an arithmetic pipe without a counter. A details page has no pipe counters, and ncu's pipe
    rule there never names XU: what no named pipe, the issue slots, L1 or barriers explain is XU's.
    """
    sm = q["sm_throughput_pct"]
    pipe = busiest_pipe(q)
    known = [q[key] for key in (f"{pipe}_pct", "issue_pct") if key in q]
    if not known:
        return {"compute_pct": sm}
    explained = min(sm, max(known))
    l1, barrier = q.get("l1_throughput_pct", 0.0), q.get("stall_barrier_share_pct", 0.0)
    if any(pipe_key(p) in metrics for p in ARITHMETIC_PIPES):
        others = max(l1, *(q.get(f"{p}_pct", 0.0) for p in _OTHER_PIPES))
        complete = all(pipe_key(p) in metrics for p in ("lsu", "adu", "xu", "alu"))
        unexplained = complete and sm - max(explained, others) >= UNEXPLAINED_PCT
        return {"compute_pct": sm if unexplained else explained, "compute_known": 1.0}
    if sm - explained < UNEXPLAINED_PCT or 2.0 * max(l1, barrier) >= sm:
        return {"compute_pct": explained, "compute_known": 1.0}
    found = {"compute_pct": sm, "compute_known": 1.0}
    if "stall_mio_throttle_share_pct" in q or "stall_short_scoreboard_share_pct" in q:
        share = max(q.get("sm_active_share", 1.0), 0.01)
        found |= {"xu_pct": sm, "xu_active_pct": min(sm / share, 100.0)}
    return found


def _comparisons(metrics: Mapping[str, float], q: Mapping[str, float]) -> dict[str, float]:
    """The busiest level, where enough levels are known to call it that, and who leads whom."""
    found: dict[str, float] = {}
    compute, l1 = q.get("compute_pct"), q.get("l1_throughput_pct")
    dram, l2 = q.get("dram_throughput_pct"), q.get("l2_throughput_pct")
    memory = metrics.get("memory_throughput_pct")  # ncu's maximum over L1, L2, DRAM and fabric
    unknown = UNKNOWN_LEVEL_PCT if memory is None else memory
    scaled_l1 = None if l1 is None else l1 * BUSY_PCT / L1_BUSY_PCT
    levels = [compute, dram, l2, scaled_l1]
    known = [level for level in levels if level is not None]
    if memory is not None and None in levels:
        known.append(memory)
    if known:
        found["busiest_known_level_pct"] = max(known)
    if compute is not None and (memory is not None or None not in (dram, l2)):
        found["busiest_level_pct"] = max(known)
    if compute is not None:
        for name, level in (("dram", dram), ("l2", l2), ("l1", l1)):
            found[f"compute_over_{name}_pct"] = compute - (unknown if level is None else level)
    if dram is not None:
        found["dram_over_compute_pct"] = dram - (0.0 if compute is None else compute)
    if l1 is not None and l2 is not None:
        found["l2_over_l1_pct"] = l2 - l1
    return found
