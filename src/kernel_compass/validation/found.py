"""What steps and watches say against a candidate."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.records.trial import Reason


@dataclass(frozen=True)
class Found:
    """What was found against a candidate."""

    reason: Reason
    detail: str
