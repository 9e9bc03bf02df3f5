"""What is no longer tried at a workload, by what was found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_compass.records.trial import Candidate, Reason, Trial

MOST_BROKEN = 3
"""Configurations of a family that fail for good while none was ever timed."""
_OF_A_CONFIG = frozenset(
    {
        Reason.BUILD_FAILED,
        Reason.COMPILE_TIMEOUT,
        Reason.DOES_NOT_FIT,
        Reason.OUT_OF_MEMORY,
        Reason.CANCELLED,
        Reason.REMEMBERED,
        Reason.CANNOT_PAY,
        Reason.NOT_FASTER,
    }
)
"""Reasons that say nothing of the next configuration."""
Family = tuple[str, str | None]


@dataclass(frozen=True)
class LeftOut:
    """Formats that cost too much, and implementations that are broken in a format."""

    formats: frozenset[str | None] = frozenset()
    families: frozenset[Family] = frozenset()

    def has(self, candidate: Candidate) -> bool:
        """Whether it is not tried any more."""
        if candidate.format is not None and candidate.format in self.formats:
            return True
        return (candidate.implementation, candidate.format) in self.families


def left_out(tried: Sequence[Trial]) -> LeftOut:
    """What these trials rule out.

    The error of a format is the quantizer's, so one candidate over the budget speaks for all of its
    format; an implementation gets a few configurations to be right in one.
    """
    formats = {
        t.proposal.candidate.format
        for t in tried
        if t.reason is Reason.OVER_BUDGET and t.proposal.candidate.format is not None
    }
    broken = Counter(_family(t) for t in tried if _is_broken(t))
    timed = {_family(t) for t in tried if t.results}
    families = {f for f, count in broken.items() if count >= MOST_BROKEN and f not in timed}
    return LeftOut(frozenset(formats), frozenset(families))


def _is_broken(trial: Trial) -> bool:
    return trial.reason is not None and not trial.results and trial.reason not in _OF_A_CONFIG


def _family(trial: Trial) -> Family:
    candidate = trial.proposal.candidate
    return candidate.implementation, candidate.format
