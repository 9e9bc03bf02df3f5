"""Candidates as users name them, with the files whose code would run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kernel_compass.api.problem_candidates import BASELINE_FORMAT, MODEL_NEW
from kernel_compass.api.problems import sha256_of
from kernel_compass.errors import UsageError, shortened
from kernel_compass.kernels.providers import registry
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.trial import Candidate


@dataclass(frozen=True)
class NamedCandidate:
    """A candidate as a user named it."""

    candidate: Candidate
    path: Path | None = None
    """Its own file."""
    sha256: str | None = None

    @property
    def files(self) -> tuple[tuple[Path, str], ...]:
        """Its own file with its SHA-256, where it has one."""
        return () if self.path is None or self.sha256 is None else ((self.path, self.sha256),)


def candidate_named(
    text: str, source: ProblemSource, config: str | None = None, number_format: str | None = None
) -> NamedCandidate:
    """A candidate by the word for it.

    Args:
        text: an implementation, a name in the problem's file, `baseline`, `FILE.py` (its
            `ModelNew`) or `FILE.py:FUNCTION`.
        source: the problem.
        config: JSON, an object of numbers, texts and truth values.
        number_format: of an implementation; `None` = bf16.

    Raises:
        UsageError: nothing is called that.
    """
    chosen = _config(config)
    place, _, function = text.partition(".py:")
    is_path = text.endswith(".py") or bool(function)
    if source.sha256 is None:
        if is_path:
            found = f"{shortened(text)} is a file, and candidates of products are implementations."
            names = ", ".join(one.name for one in registry.all_implementations())
            raise UsageError(found, f"Name one of {names}.")
        one = registry.implementation(text)
        parsed = NumberFormat.parse(number_format or BASELINE_FORMAT).name
        return NamedCandidate(Candidate(one.name, chosen, parsed, one.provider))
    if number_format is not None:
        raise UsageError("A candidate of a file has no --format.", "Leave it out.")
    if not is_path:
        return NamedCandidate(Candidate(text, chosen, source=source.target))
    path = Path(f"{place}.py" if function else text).absolute()
    candidate = Candidate(function or MODEL_NEW, chosen, source=str(path))
    return NamedCandidate(candidate, path, sha256_of(path))


def _config(text: str | None) -> dict[str, int | bool | str]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"--config {shortened(text)} is no JSON: {error}.", 'Write it as {"block": 64}.'
        ) from None
    if not isinstance(found, dict) or not all(
        isinstance(value, int | str | bool) for value in found.values()
    ):
        raise UsageError(
            f"--config {shortened(text)} is no object of numbers, texts and truth values.",
            'Write it as {"block": 64}.',
        )
    return found
