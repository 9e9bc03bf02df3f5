"""What compute-sanitizer says of a finalist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.trial import Outcome, Reason, Trial

MOST_SHOWN = 3
"""Findings of a tool in a trial's detail."""


def sanitized(trial: Trial, end: TaskEnd) -> Trial:
    """A judged finalist, after its call under each tool.

    One that a tool has a finding about is rejected; one that a tool could not be run on to its end
    has failed: it was to be looked at, and was not, for a reason that is the tool's own.

    Args:
        trial: what the judge said.
        end: of the task; its answer has `reports`, or `unavailable`, why there are none.
    """
    if end.answer is None:
        failed = end.failure.detail if end.failure else "no answer"
        return _failed(trial, failed)
    if "unavailable" in end.answer:
        return _failed(trial, end.answer["unavailable"])
    reports = end.answer["reports"]
    bad = [one for one in reports if not one["is_clean"]]
    if not bad:
        names = " and ".join(one["tool"] for one in reports)
        note = f"{names} found nothing; of races, those on shared memory alone are seen"
        return replace(trial, notes=(*trial.notes, note))
    detail = "; ".join(_text(one) for one in bad)
    return replace(trial, outcome=Outcome.REJECTED, reason=Reason.SANITIZER, detail=detail)


def _failed(trial: Trial, detail: str) -> Trial:
    found = f"compute-sanitizer did not come to its end: {detail}"
    return replace(trial, outcome=Outcome.FAILED, reason=Reason.TOOL_FAILED, detail=found)


def _text(report: Mapping[str, Any]) -> str:
    found: Sequence[str] = report["findings"]
    shown = "; ".join(found[:MOST_SHOWN]) or "what it ran ended with an error"
    more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"{report['tool']}: {shown}{more}"
