"""Stage 2 for one kernel in one regime: limiter, flags, evidence, confidence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kernel_compass.analysis.advice import advise
from kernel_compass.analysis.headroom import headroom
from kernel_compass.analysis.quantities import quantities
from kernel_compass.analysis.residency import Residency, residency
from kernel_compass.analysis.rules import (
    FLAG_RULES,
    LIMITER_RULES,
    Condition,
    FlagRule,
    LimiterRule,
)
from kernel_compass.analysis.utilization import busiest_pipe
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Flag, Limiter
from kernel_compass.records.metrics import STALL_REASONS, pipe_key
from kernel_compass.records.profile import KernelProfile, Source

PIPE_NAMED_PCT = 50.0
"""A compute-bound kernel's pipe is named from this utilization on, while SMs are active."""
LAUNCH_CONFIDENCE_CAP = 0.7
"""Counters alone only suspect a launch-bound kernel."""

_MATRIX_PRODUCT = re.compile(r"gemm|matmul|(?<![a-z])b?mm(?![a-z])|conv\d?d|linear", re.IGNORECASE)

_COMPLETENESS = (
    ("sm_throughput_pct", 0.15),
    ("dram_throughput_pct", 0.25),
    ("l2_throughput_pct", 0.15),
    ("l1_throughput_pct", 0.10),
    ("duration_us", 0.10),
    ("achieved_occupancy_pct", 0.10),
    ("issue_active_pct", 0.075),
    ("stall_dependency_share_pct", 0.075),
)

INTEGRATED = frozenset(("8.7", "11.0", "12.1"))
"""Compute capabilities of integrated GPUs: ncu has no DRAM counters there, so nobody knows
whether DRAM is idle."""
UNBACKED_CONFIDENCE_CAP = 0.5
"""compute_bound from SM throughput alone, without pipe or issue counters behind it, and "no level
is busy" where L1 is not known."""
_LEVELS = ("sm_throughput_pct", "dram_throughput_pct", "l2_throughput_pct", "l1_throughput_pct")
_EXPECTED = {
    "sm_throughput_pct": "SM throughput",
    "dram_throughput_pct": "DRAM throughput",
    "l2_throughput_pct": "L2 throughput",
    "l1_throughput_pct": "L1 throughput",
    "issue_active_pct": "issue activity",
    "achieved_occupancy_pct": "occupancy",
    "duration_us": "duration",
}


def diagnose_kernel(
    kernel: KernelProfile,
    source: Source,
    device: Device | None,
    flushed: KernelProfile | None = None,
    residency_answered: bool = False,
    without: frozenset[Limiter] = frozenset(),
    calibration: Calibration | None = None,
) -> Diagnosis:
    """Diagnose one kernel from one capture. Pure.

    Args:
        kernel: the launches of one kernel.
        source: how the capture was taken.
        device: the GPU, where known.
        flushed: the same kernel from a capture with flushed caches, where joined: tells whether
            an L2-resident kernel re-uses within the launch or between launches.
        residency_answered: another joined regime answers the residency question, so that
            `residency_unknown` is not raised for this one.
        without: limiters that something else refuted, e.g. launch_bound by a timeline.
        calibration: the machine the capture was taken on; without it there is no headroom.
    """
    q = quantities(kernel)
    if "dram_throughput_pct" not in q and device and device.compute_capability in INTEGRATED:
        q.pop("busiest_level_pct", None)
    rules = (r for r in LIMITER_RULES if r.limiter not in without)
    rule = next((r for r in rules if all(c.holds(q) for c in r.conditions)), None)
    limiter = rule.limiter if rule else Limiter.UNCLASSIFIED
    pipe = _named_pipe(q) if limiter is Limiter.COMPUTE_BOUND else None
    resident = residency(q, source, device, quantities(flushed) if flushed else None)
    if residency_answered and resident.flag is Flag.RESIDENCY_UNKNOWN:
        resident = Residency()
    fired = [r for r in FLAG_RULES if _fires(r, q, limiter)]
    flags = _flags(kernel, q, limiter, pipe, resident, fired)
    room = headroom(kernel.metrics, q, limiter, calibration) if calibration else None
    return Diagnosis(
        limiter=limiter,
        confidence=_confidence(rule, q),
        evidence=(*_evidence(rule, q, pipe, resident, fired), *((room.evidence,) if room else ())),
        pipe=pipe,
        flags=flags,
        reuse=resident.reuse,
        headroom=room.headroom if room else None,
        advice=advise(limiter, pipe, flags, resident.reuse),
    )


def _fires(rule: FlagRule, q: Mapping[str, float], limiter: Limiter) -> bool:
    if rule.limiters is not None and limiter not in rule.limiters:
        return False
    return all(c.holds(q) for c in rule.conditions)


def _named_pipe(q: Mapping[str, float]) -> str | None:
    pipe = busiest_pipe(q)
    return pipe if pipe and q[f"{pipe}_active_pct"] >= PIPE_NAMED_PCT else None


def _flags(
    kernel: KernelProfile,
    q: Mapping[str, float],
    limiter: Limiter,
    pipe: str | None,
    resident: Residency,
    fired: list[FlagRule],
) -> tuple[Flag, ...]:
    found = ([resident.flag] if resident.flag else []) + [r.flag for r in fired]
    idle_tensor = limiter is Limiter.COMPUTE_BOUND and pipe in ("fma", "fp16")
    if (
        idle_tensor
        and q.get("tensor_active_pct", 1.0) < 1.0
        and _MATRIX_PRODUCT.search(kernel.name)
    ):
        found.append(Flag.TENSOR_CORES_IDLE)
    return tuple(dict.fromkeys(found))


def _confidence(rule: LimiterRule | None, q: Mapping[str, float]) -> float:
    """Margin to the deciding thresholds (0.5 on the threshold, 1 well past) times completeness."""
    complete = sum(weight for key, weight in _COMPLETENESS if key in q)
    if rule is None:
        return round(0.4 * complete, 2)
    margin = min(c.margin(q) for c in rule.conditions)
    confidence = min(complete, 1.0) * (0.5 + 0.5 * margin)
    if rule.limiter is Limiter.LAUNCH_BOUND:
        confidence = min(confidence, LAUNCH_CONFIDENCE_CAP)
    unbacked = rule.limiter is Limiter.COMPUTE_BOUND and "compute_known" not in q
    if unbacked or _levels_missing(rule, q):
        confidence = min(confidence, UNBACKED_CONFIDENCE_CAP)
    return round(confidence, 2)


def _levels_missing(rule: LimiterRule, q: Mapping[str, float]) -> list[str]:
    """The levels that a rule calls idle although the capture does not carry them."""
    if not {c.quantity for c in rule.conditions} & {"busiest_level_pct", "busiest_known_level_pct"}:
        return []
    bounded = "memory_throughput_pct" in q
    return [] if bounded else [_EXPECTED[key] for key in _LEVELS if key not in q]


def _evidence(
    rule: LimiterRule | None,
    q: Mapping[str, float],
    pipe: str | None,
    resident: Residency,
    fired: list[FlagRule],
) -> Iterator[Evidence]:
    if rule is None:
        yield from _why_unclassified(q)
    else:
        for condition in rule.conditions:
            if "_over_" not in condition.quantity:
                yield _from_condition(condition, q)
        if missing := _levels_missing(rule, q):
            names = ", ".join(missing)
            yield Evidence("metrics_missing", len(missing), "", f"not collected: {names}")
    if pipe is not None:
        yield Evidence(pipe_key(pipe), q[f"{pipe}_active_pct"], "%", "while SMs have work")
    if rule is not None and rule.limiter is Limiter.LATENCY_BOUND:
        yield from _top_stall(q)
    yield from resident.evidence
    for flag_rule in fired:
        yield _from_condition(flag_rule.conditions[0], q)


def _from_condition(condition: Condition, q: Mapping[str, float]) -> Evidence:
    return Evidence(
        metric=condition.quantity,
        value=q[condition.quantity],
        unit="" if condition.unit == "bool" else condition.unit,
        meaning=condition.meaning,
        threshold=condition.threshold,
    )


def _top_stall(q: Mapping[str, float]) -> Iterator[Evidence]:
    shares = {r: q[k] for r in STALL_REASONS if (k := f"stall_{r}_share_pct") in q}
    if shares:
        top = max(shares, key=lambda reason: shares[reason])
        yield Evidence(
            f"stall_{top}_share_pct", shares[top], "%", f"of the warps' time is spent in {top}"
        )


def _why_unclassified(q: Mapping[str, float]) -> Iterator[Evidence]:
    if "busiest_level_pct" in q:
        yield Evidence(
            "busiest_level_pct", q["busiest_level_pct"], "%", "the busiest level; nothing dominates"
        )
    missing = [name for key, name in _EXPECTED.items() if key not in q]
    if missing:
        yield Evidence(
            "metrics_missing", float(len(missing)), "", f"not collected: {', '.join(missing)}"
        )
