"""Whether a kernel is launch-bound, by what a timeline shows; alone or beside ncu's counters.

ncu serialises launches, so counters can only suspect it. A timeline shows the gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.analysis.timeline_runs import LAUNCH_GAP_US, NEAR_FIXED_US, SHORT_US
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Limiter
from kernel_compass.records.timeline import KernelTimeline

WELL_OVER_US = 2.0 * NEAR_FIXED_US
"""From here on a kernel's time is its own and not the launch's, if no gap stands before it."""
SMALL_GAP_SHARE = 0.25
"""A gap under this share of the duration costs little."""
CONFIRMED_CONFIDENCE = 0.95
"""Most that counters and a timeline that agree give."""


class LaunchVerdict(StrEnum):
    """What a timeline says to the suspicion."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    OPEN = "open"
    """Short, but without gaps that would show what the launch costs; or not seen."""


@dataclass(frozen=True)
class LaunchEvidence:
    """One kernel's launches in a timeline."""

    duration_us: float
    """Median."""
    gap_before_us: float | None
    """Median idle time of the stream before it."""
    late_us: float | None
    """Median part of it that passed before the launch was handed over."""
    in_graph: bool
    """Whether a CUDA graph launched at least half of them."""

    @classmethod
    def of(cls, duration_us: float, launches: int, seen: KernelTimeline) -> LaunchEvidence:
        """The evidence of a kernel of a timeline."""
        in_graph = 2 * seen.launches_in_graph >= launches > 0
        return cls(duration_us, seen.gap_before_us, seen.late_us, in_graph)

    @property
    def gap_dominates(self) -> bool:
        """Whether the stream idles longer before it than it runs, as launches make it idle."""
        gap = self.gap_before_us
        if gap is None or self.duration_us > SHORT_US:
            return False
        return self.duration_us <= gap <= LAUNCH_GAP_US

    @property
    def near_fixed(self) -> bool:
        """Whether it hardly takes longer than an empty kernel."""
        return self.duration_us <= NEAR_FIXED_US


def judge_launch(evidence: LaunchEvidence) -> LaunchVerdict:
    """Confirm or refute that a kernel is launch-bound. Pure.

    Confirmed: the gap before it is at least as long as the kernel. Refuted: it runs well over the
    fixed cost and hardly any gap stands before it, as in a CUDA graph. Else open.
    """
    if evidence.gap_dominates:
        return LaunchVerdict.CONFIRMED
    gap = evidence.gap_before_us
    close = gap is not None and gap <= SMALL_GAP_SHARE * evidence.duration_us
    if close and evidence.duration_us >= WELL_OVER_US:
        return LaunchVerdict.REFUTED
    return LaunchVerdict.OPEN


def with_timeline(
    diagnosis: Diagnosis, evidence: LaunchEvidence, otherwise: Diagnosis | None = None
) -> Diagnosis:
    """A diagnosis from counters, after what a timeline of the same kernel says. Pure.

    Args:
        diagnosis: from counters; only one that suspects launch_bound changes.
        evidence: the kernel in the timeline.
        otherwise: what the counters say when launch_bound is left out; without it a refuted
            suspicion is unclassified.
    """
    if diagnosis.limiter is not Limiter.LAUNCH_BOUND:
        return diagnosis
    verdict = judge_launch(evidence)
    numbers = (*launch_numbers(evidence), *diagnosis.evidence)
    if verdict is LaunchVerdict.CONFIRMED:
        # The counters' cap stood for the doubt that the timeline has removed.
        confidence = min(1.0 - (1.0 - diagnosis.confidence) * 0.4, CONFIRMED_CONFIDENCE)
        return _changed(diagnosis, diagnosis.limiter, confidence, numbers)
    if verdict is LaunchVerdict.OPEN:
        return _changed(diagnosis, diagnosis.limiter, diagnosis.confidence, numbers)
    if otherwise is not None and otherwise.limiter is not Limiter.LAUNCH_BOUND:
        numbers = (*launch_numbers(evidence), *otherwise.evidence)
        return _changed(otherwise, otherwise.limiter, otherwise.confidence, numbers)
    return _changed(diagnosis, Limiter.UNCLASSIFIED, 0.4 * diagnosis.confidence, numbers)


def launch_numbers(evidence: LaunchEvidence) -> tuple[Evidence, ...]:
    """The timeline's numbers on a kernel's launches, the deciding one first."""
    duration = Evidence(
        "timeline_duration_us",
        evidence.duration_us,
        "us",
        "median on the timeline; a kernel that does nothing takes about 1 us",
        NEAR_FIXED_US,
    )
    gap = evidence.gap_before_us
    if gap is None:
        return (duration,)
    words = "the stream idles before it"
    if evidence.in_graph:
        words += ", inside a CUDA graph"
    numbers = [Evidence("gap_before_us", gap, "us", words)]
    if evidence.late_us is not None and gap > 0:
        share = 100.0 * min(evidence.late_us / gap, 1.0)
        numbers.append(Evidence("gap_late_pct", share, "%", "of it before the CPU had launched it"))
    return (*numbers, duration) if evidence.gap_dominates else (duration, *numbers)


def _changed(
    diagnosis: Diagnosis, limiter: Limiter, confidence: float, evidence: tuple[Evidence, ...]
) -> Diagnosis:
    return Diagnosis(
        limiter=limiter,
        confidence=round(confidence, 2),
        evidence=evidence,
        pipe=diagnosis.pipe if limiter is diagnosis.limiter else None,
        flags=diagnosis.flags,
        reuse=diagnosis.reuse,
        headroom=diagnosis.headroom,
        advice=diagnosis.advice if limiter is diagnosis.limiter else (),
    )
