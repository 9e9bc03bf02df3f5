"""Recordings as problems of the loop: the same workloads and spaces, from a file."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.analysis.format_traffic import stored_weight
from kernel_compass.records.loop_recording import (
    LoopRecording,
    RecordedCandidate,
    RecordedWorkload,
)
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ERROR_BUDGET_PCT, ProblemDescription
from kernel_compass.records.search_space import CandidateSpace


def recorded_problem(recording: LoopRecording) -> ProblemDescription:
    """The problem that was recorded."""
    workloads = tuple(one.workload for one in recording.workloads)
    return ProblemDescription(recording.target, workloads, ("weight",), ERROR_BUDGET_PCT)


def recorded_spaces(
    recording: LoopRecording, formats: Sequence[str] = ()
) -> dict[str, tuple[CandidateSpace, ...]]:
    """What was recorded of each workload, as spaces.

    Args:
        recording: all of it.
        formats: those that may be tried; none = all.
    """
    return {one.workload.name: _spaces(one, formats) for one in recording.workloads}


def _spaces(one: RecordedWorkload, formats: Sequence[str]) -> tuple[CandidateSpace, ...]:
    families: dict[tuple[str, str | None], list[RecordedCandidate]] = {}
    for candidate in one.candidates:
        if not formats or candidate.format is None or candidate.format in formats:
            key = candidate.implementation, candidate.format
            families.setdefault(key, []).append(candidate)
    return tuple(_space(found, one) for found in families.values())


def _space(found: Sequence[RecordedCandidate], workload: RecordedWorkload) -> CandidateSpace:
    first = found[0]
    regimes = [r for r in workload.baseline_us if any(r in c.estimates_us for c in found)]
    return CandidateSpace(
        first.implementation,
        tuple(dict(c.config) for c in found),
        first.format,
        first.source,
        {r: tuple(c.estimates_us.get(r) for c in found) for r in regimes},
        dict(first.floors_us),
        dict(workload.bounds),
        _weight_bytes(workload, first.format),
        basis="recorded estimates",
    )


def _weight_bytes(workload: RecordedWorkload, number_format: str | None) -> int | None:
    product = workload.workload.product
    if product is None or number_format is None:
        return None
    return stored_weight(product, NumberFormat.parse(number_format)).total
