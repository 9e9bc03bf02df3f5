"""A trial as a `kernel-compass/trial/1` document, and back: the same bytes for the same trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_compass.codec.canonical import (
    Part,
    Upgrade,
    compact,
    indented,
    part,
    plain,
    record_in,
    versioned,
)
from kernel_compass.errors import StudyError
from kernel_compass.records.comparison import Interval
from kernel_compass.records.trial import Outcome, Proposal, Trial

NAME = "kernel-compass/trial"
VERSION = 1
SCHEMA = f"{NAME}/{VERSION}"
UPGRADES: Mapping[int, Upgrade] = {}
"""From each older version to the next; there is none before 1."""
_REMEDY = "Name a trial's document, as `kernel-compass show STUDY --json` holds them."
ConfigDocument = dict[str, int | bool | str]


class CandidateDocument(Part):
    """`proposal.candidate`."""

    implementation: str
    config: ConfigDocument
    format: str | None
    source: str


class MovementDocument(Part):
    """One of `prediction.counters`."""

    metric: str
    expected: float
    seen: float | None


class PredictionDocument(Part):
    """`proposal.prediction`."""

    times_us: dict[str, float]
    basis: str
    counters: list[MovementDocument]


class ProposalDocument(Part):
    """`proposal`."""

    candidate: CandidateDocument
    action: str
    why: str
    proposer: str
    evidence: list[str]
    prediction: PredictionDocument | None
    cost_s: float


class IntervalDocument(Part):
    """A speedup."""

    estimate: float
    low: float
    high: float
    confidence: float


class ResultDocument(Part):
    """One of `results`."""

    regime: str
    baseline_us: float
    candidate_us: float
    speedup: IntervalDocument
    hold_out: bool


class TrialPart(Part):
    """A trial without the name of its schema, as other documents hold it."""

    number: int
    workload: str
    proposal: ProposalDocument
    outcome: str
    reason: str | None
    detail: str
    results: list[ResultDocument]
    fidelity_error_pct: float | None
    format_error_pct: float | None
    added_bytes: int | None
    explained: bool | None
    notes: list[str]


class TrialDocument(TrialPart):
    """The whole document."""

    schema: str


def encode(trial: Trial) -> bytes:
    """A trial as an indented JSON object with a final newline.

    Raises:
        StudyError: it contradicts itself, or holds a number that is not finite.
    """
    return indented({"schema": SCHEMA, **_checked(trial)})


def encode_line(trial: Trial) -> bytes:
    """The same on one line: what a ledger keeps and hashes.

    Raises:
        StudyError: it contradicts itself, or holds a number that is not finite.
    """
    return compact({"schema": SCHEMA, **_checked(trial)})


def decode(data: bytes | str, label: str = "This") -> Trial:
    """The trial that a document of this or an older version holds.

    Raises:
        StudyError: it is no such document, or a newer version's.
    """
    document = versioned(data, NAME, VERSION, TrialDocument, label, UPGRADES, _REMEDY)
    try:
        found = plain(document)
        del found["schema"]
        return trial_of(found)
    except ValueError as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None


def trial_part(trial: Trial) -> Any:
    """A trial as other documents hold it, in plain values.

    Raises:
        ValueError: it contradicts itself, or holds a number that is not finite.
    """
    return part(trial, TrialPart, trial_of)


def trial_of(found: Any) -> Trial:
    """The trial in such a part.

    Raises:
        ValueError: it is none, or contradicts itself.
    """
    trial = record_in(found, TrialPart, Trial)
    if trial.number < 1:
        raise ValueError(f"number is {trial.number}")
    passed = trial.outcome in (Outcome.ACCEPTED, Outcome.SCREENED)
    if passed != (trial.reason is None):
        raise ValueError(f"it is {trial.outcome} and its reason is {trial.reason}")
    for result in trial.results:
        check_interval(result.speedup)
        if min(result.baseline_us, result.candidate_us) <= 0:
            raise ValueError("a time is not positive")
    return trial


def proposal_part(proposal: Proposal) -> Any:
    """A proposal in plain values.

    Raises:
        ValueError: it holds a number that is not finite, or what JSON cannot say.
    """
    return part(proposal, ProposalDocument)


def proposal_of(found: Any) -> Proposal:
    """The proposal in such a part.

    Raises:
        ValueError: it is none.
    """
    return record_in(found, ProposalDocument, Proposal)


def check_interval(interval: Interval) -> None:
    """No interval that does not hold its estimate.

    Raises:
        ValueError: it is one.
    """
    if not 0 < interval.low <= interval.estimate <= interval.high:
        ends = f"{interval.low} to {interval.high}"
        raise ValueError(f"a speedup of {interval.estimate} lies not in its interval, {ends}")
    if not 0 < interval.confidence < 1:
        raise ValueError(f"a confidence is {interval.confidence}")


def _checked(trial: Trial) -> Any:
    try:
        return trial_part(trial)
    except ValueError as error:
        raise StudyError(
            f"Trial {trial.number} cannot be recorded: {error}.",
            "Whoever made it must mend it; nothing was written.",
        ) from None
