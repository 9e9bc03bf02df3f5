"""Counters suspect, a timeline decides."""

from __future__ import annotations

import pytest

from kernel_compass.analysis.bottleneck import diagnose_kernel
from kernel_compass.analysis.launch_verdict import (
    LaunchEvidence,
    LaunchVerdict,
    judge_launch,
    with_timeline,
)
from kernel_compass.records.diagnosis import Limiter
from kernel_compass.records.profile import DurationStats, KernelProfile, Source, SourceFormat
from kernel_compass.records.timeline import KernelTimeline

SOURCE = Source("c.csv", SourceFormat.NCU_CSV_LONG)


@pytest.mark.parametrize(
    ("duration", "gap", "in_graph", "verdict"),
    [
        (2.0, 9.0, False, LaunchVerdict.CONFIRMED),
        (2.0, 2.0, True, LaunchVerdict.CONFIRMED),
        (12.0, 15.0, False, LaunchVerdict.CONFIRMED),
        (12.0, 1.0, True, LaunchVerdict.REFUTED),
        (12.0, 0.0, False, LaunchVerdict.REFUTED),
        (12.0, 6.0, False, LaunchVerdict.OPEN),  # a gap that costs, but not the most
        (2.0, 1.0, True, LaunchVerdict.OPEN),  # as short as the fixed cost, without gaps
        (6.0, 0.5, True, LaunchVerdict.OPEN),  # not well over it
        (12.0, None, False, LaunchVerdict.OPEN),  # always first in its stream
        (12.0, 5000.0, False, LaunchVerdict.OPEN),  # a pause of the program, no launch
        (500.0, 600.0, False, LaunchVerdict.OPEN),
    ],
)
def test_the_verdict(duration, gap, in_graph, verdict) -> None:
    assert judge_launch(LaunchEvidence(duration, gap, None, in_graph)) is verdict


def short_kernel(**more: float) -> KernelProfile:
    """One that counters suspect: 3 us, no level busy, schedulers idle."""
    metrics = {
        "sm_throughput_pct": 3.0, "dram_throughput_pct": 5.0, "l2_throughput_pct": 4.0,
        "l1_throughput_pct": 2.0, "memory_throughput_pct": 5.0, "achieved_occupancy_pct": 12.0,
        "issue_active_pct": 8.0,
    }  # fmt: skip
    stats = DurationStats(3.0, 3.0, 3.0, 3.0, 30.0)
    return KernelProfile("k", (8, 1, 1), (128, 1, 1), 0, 10, stats, metrics | more)


def both(evidence: LaunchEvidence):
    kernel = short_kernel()
    suspected = diagnose_kernel(kernel, SOURCE, None)
    assert suspected.limiter is Limiter.LAUNCH_BOUND
    assert suspected.confidence <= 0.7
    without = diagnose_kernel(kernel, SOURCE, None, without=frozenset({Limiter.LAUNCH_BOUND}))
    assert without.limiter is Limiter.LATENCY_BOUND
    return suspected, with_timeline(suspected, evidence, without)


def test_gaps_confirm_and_raise_the_confidence_over_the_cap_of_counters() -> None:
    suspected, answer = both(LaunchEvidence(3.1, 8.0, 6.0, in_graph=False))
    assert answer.limiter is Limiter.LAUNCH_BOUND
    assert suspected.confidence < answer.confidence <= 0.95
    assert answer.confidence > 0.7
    assert [e.metric for e in answer.evidence[:2]] == ["gap_before_us", "gap_late_pct"]
    assert answer.evidence[1].value == 75.0
    assert set(suspected.evidence) < set(answer.evidence)


def test_a_graph_without_gaps_and_a_long_duration_refute() -> None:
    suspected, answer = both(LaunchEvidence(14.0, 0.8, 0.0, in_graph=True))
    assert answer.limiter is Limiter.LATENCY_BOUND
    assert answer.advice != suspected.advice
    assert "inside a CUDA graph" in " ".join(e.meaning for e in answer.evidence)


def test_a_gap_of_nothing_refutes_and_is_told() -> None:
    _, answer = both(LaunchEvidence(14.0, 0.0, 0.0, in_graph=False))
    assert answer.limiter is Limiter.LATENCY_BOUND
    assert ("gap_before_us", 0.0) in [(e.metric, e.value) for e in answer.evidence]


def test_what_a_graph_launches_already_is_not_advised_to_be_captured() -> None:
    suspected, answer = both(LaunchEvidence(2.0, 3.0, 0.0, in_graph=True))
    assert answer.limiter is Limiter.LAUNCH_BOUND
    assert "capture" in " ".join(suspected.advice)
    assert "capture" not in " ".join(answer.advice)
    assert len(answer.advice) == len(suspected.advice)


def test_refuted_with_nothing_else_to_say() -> None:
    suspected = diagnose_kernel(short_kernel(), SOURCE, None)
    answer = with_timeline(suspected, LaunchEvidence(14.0, 0.8, 0.0, in_graph=True))
    assert answer.limiter is Limiter.UNCLASSIFIED
    assert answer.confidence < suspected.confidence


def test_what_stays_open_stays_as_it_is_with_the_numbers() -> None:
    suspected, answer = both(LaunchEvidence(3.0, 0.9, 0.0, in_graph=True))
    assert (answer.limiter, answer.confidence) == (suspected.limiter, suspected.confidence)
    assert len(answer.evidence) > len(suspected.evidence)


def test_other_limiters_do_not_change() -> None:
    busy = diagnose_kernel(short_kernel(dram_throughput_pct=90.0), SOURCE, None)
    assert busy.limiter is Limiter.DRAM_BOUND
    assert with_timeline(busy, LaunchEvidence(3.0, 9.0, 9.0, in_graph=False)) is busy


def test_evidence_of_a_timelines_kernel() -> None:
    seen = KernelTimeline(0.1, 7.0, 5.0, 2.0, launches_in_graph=5, launches_in_runs=0)
    assert LaunchEvidence.of(3.0, 10, seen) == LaunchEvidence(3.0, 7.0, 5.0, in_graph=True)
    assert not LaunchEvidence.of(3.0, 11, seen).in_graph
