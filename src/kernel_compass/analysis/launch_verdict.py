"""Whether a kernel is launch-bound, by what a timeline shows; alone or beside ncu's counters.

ncu serialises launches, so counters can only suspect it. A timeline shows the gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from kernel_compass.analysis.advice import LIMITER_ADVICE, launch_advice
from kernel_compass.analysis.timeline_runs import LAUNCH_GAP_US, SHORT_US, TYPICAL, FixedCost
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Limiter
from kernel_compass.records.timeline import KernelTimeline
from kernel_compass.units import duration_text

WELL_OVER = 2.0
"""From so many times the near-fixed duration on a kernel's time is its own and not the launch's, if
no gap stands before it."""
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
    fixed: FixedCost = TYPICAL
    """What a launch costs on this GPU."""

    @classmethod
    def of(
        cls,
        duration_us: float,
        launches: int,
        seen: KernelTimeline,
        fixed: FixedCost = TYPICAL,
    ) -> LaunchEvidence:
        """The evidence of a kernel of a timeline."""
        in_graph = 2 * seen.launches_in_graph >= launches > 0
        return cls(duration_us, seen.gap_before_us, seen.late_us, in_graph, fixed)

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
        return self.duration_us <= self.fixed.near_us


def judge_launch(evidence: LaunchEvidence) -> LaunchVerdict:
    """Confirm or refute that a kernel is launch-bound. Pure.

    Confirmed: the gap before it is at least as long as the kernel. Refuted: it runs well over the
    fixed cost and hardly any gap stands before it, as in a CUDA graph. Else open.
    """
    if evidence.gap_dominates:
        return LaunchVerdict.CONFIRMED
    gap = evidence.gap_before_us
    close = gap is not None and gap <= SMALL_GAP_SHARE * evidence.duration_us
    if close and evidence.duration_us >= WELL_OVER * evidence.fixed.near_us:
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
    told = launch_numbers(evidence, noise=True)  # here a gap of nothing decides as well
    numbers = (*told, *diagnosis.evidence)
    if verdict is LaunchVerdict.CONFIRMED:
        # The counters' cap stood for the doubt that the timeline has removed.
        confidence = min(1.0 - (1.0 - diagnosis.confidence) * 0.4, CONFIRMED_CONFIDENCE)
        return _changed(_told_of_graph(diagnosis, evidence), confidence, numbers)
    if verdict is LaunchVerdict.OPEN:
        return _changed(_told_of_graph(diagnosis, evidence), diagnosis.confidence, numbers)
    if otherwise is not None and otherwise.limiter is not Limiter.LAUNCH_BOUND:
        numbers = (*told, *otherwise.evidence)
        return _changed(otherwise, otherwise.confidence, numbers)
    unknown = replace(diagnosis, limiter=Limiter.UNCLASSIFIED, pipe=None, advice=())
    return _changed(unknown, 0.4 * diagnosis.confidence, numbers)


def launch_numbers(evidence: LaunchEvidence, noise: bool = False) -> tuple[Evidence, ...]:
    """The timeline's numbers on a kernel's launches, the deciding one first.

    Args:
        evidence: the kernel in the timeline.
        noise: whether to give a gap that is none.
    """
    duration = Evidence(
        "timeline_duration_us",
        evidence.duration_us,
        "us",
        f"median on the timeline; {_fixed_text(evidence.fixed)}",
        evidence.fixed.near_us,
    )
    gap = evidence.gap_before_us
    if gap is None or (gap <= 0 and not noise):
        return (duration,)
    words = "the stream idles before it"
    if evidence.in_graph:
        words += ", inside a CUDA graph"
    numbers = [Evidence("gap_before_us", gap, "us", words)]
    if evidence.late_us is not None and evidence.late_us > 0 and gap > 0:
        share = 100.0 * min(evidence.late_us / gap, 1.0)
        numbers.append(Evidence("gap_late_pct", share, "%", "of it before the CPU had launched it"))
    return (*numbers, duration) if evidence.gap_dominates else (duration, *numbers)


def _fixed_text(fixed: FixedCost) -> str:
    cost = duration_text(fixed.t0_us)
    if fixed.calibrated:
        return f"a launch costs {cost} by the calibration's t0"
    return f"a launch costs about {cost}, a typical value: this GPU's is not known"


def _told_of_graph(diagnosis: Diagnosis, evidence: LaunchEvidence) -> Diagnosis:
    """Without the advice to capture what a graph launches already."""
    if not evidence.in_graph:
        return diagnosis
    general = LIMITER_ADVICE[Limiter.LAUNCH_BOUND]
    left = tuple(launch_advice(1, 1) if text == general else text for text in diagnosis.advice)
    return replace(diagnosis, advice=left)


def _changed(diagnosis: Diagnosis, confidence: float, evidence: tuple[Evidence, ...]) -> Diagnosis:
    return replace(diagnosis, confidence=round(confidence, 2), evidence=evidence)
