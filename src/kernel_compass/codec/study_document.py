"""A study with its trials as a `kernel-compass/study/1` document, and back.

The canonical export is such a document without what differs between two runs of one recording:
the study's name, times of day, interruptions, and the folders that files lie in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import msgspec

from kernel_compass.codec.calibration_document import EnvironmentDocument
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
from kernel_compass.codec.dispatch_table import EntryDocument, entry_of, entry_part
from kernel_compass.codec.step_trial_document import step_study_of, step_study_part
from kernel_compass.codec.trial_document import TrialPart, trial_of, trial_part
from kernel_compass.errors import StudyError
from kernel_compass.records.study import RecordedStudy, Study, StudyState

NAME = "kernel-compass/study"
VERSION = 1
SCHEMA = f"{NAME}/{VERSION}"
UPGRADES: Mapping[int, Upgrade] = {}
IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
"""What a study may be called: a folder's name, and no option of a command."""
NAMELESS = "exported"
"""What the canonical export calls its study."""
_REMEDY = "Write one with `kernel-compass export STUDY --output FILE`."
_WORD = r"[^\s/'\"`:,;()\[\]]"
_FOLDERS = re.compile(rf"(?<![\w./~-])(?:~|\.{{1,2}})?/(?:{_WORD}+/)*(?={_WORD})")
ValueDocument = int | float | str | bool


class SourceDocument(Part):
    """`request.source`."""

    target: str
    arguments: dict[str, ValueDocument]
    sha256: str | None


class LimitsDocument(Part):
    """`request.limits`."""

    minutes: float | None
    trials: int | None


class RequestDocument(Part):
    """`request`."""

    source: SourceDocument
    regimes: list[str]
    error_budget_pct: float | None
    formats: list[str]
    limits: LimitsDocument
    seed: int
    strategy: str
    options: dict[str, ValueDocument]


class StudyPart(Part):
    """A study without its trials, as a ledger holds it."""

    identifier: str
    request: RequestDocument
    environment: EnvironmentDocument
    state: str


class StudyDocument(StudyPart):
    """The whole document."""

    schema: str
    trials: list[TrialPart]
    entries: list[EntryDocument]
    step: dict[str, Any] | None = None
    """Only of a study over a step."""


def encode(recorded: RecordedStudy) -> bytes:
    """A study, its ended trials and its entries as an indented JSON object with a final newline.

    Raises:
        StudyError: it contradicts itself, or holds a number that is not finite.
    """
    try:
        return indented(
            {
                "schema": SCHEMA,
                **study_part(recorded.study),
                "trials": [trial_part(one) for one in recorded.trials],
                "entries": [entry_part(one) for one in recorded.entries],
                **({} if recorded.step is None else {"step": step_study_part(recorded.step)}),
            }
        )
    except ValueError as error:
        found = f"The study {recorded.study.identifier!r} cannot be written: {error}."
        raise StudyError(found, "Nothing was written.") from None


def decode(data: bytes | str, label: str = "This") -> RecordedStudy:
    """The study that a document of this or an older version holds.

    Raises:
        StudyError: it is no such document, or a newer version's.
    """
    document = versioned(data, NAME, VERSION, StudyDocument, label, UPGRADES, _REMEDY)
    try:
        found = plain(document)
        trials = tuple(trial_of(one) for one in found.pop("trials"))
        entries = tuple(entry_of(one) for one in found.pop("entries"))
        told = found.pop("step")
        step = None if told is None else step_study_of(told)
        del found["schema"]
        numbers = [one.number for one in trials]
        if sorted(set(numbers)) != numbers:
            raise ValueError("its trials are not in order, or one is there twice")
        return RecordedStudy(study_of(found), trials, entries, step=step)
    except ValueError as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None


def canonical(recorded: RecordedStudy) -> bytes:
    """The export that two runs of one recording have in common, to the byte.

    Raises:
        StudyError: it contradicts itself.
    """
    study = recorded.study
    environment = replace(study.environment, date=None)
    named = replace(study, identifier=NAMELESS, environment=environment)
    if study.state is StudyState.INTERRUPTED:
        named = replace(named, state=StudyState.RUNNING)
    entries = (replace(one, study=NAMELESS, trial_sha256=None) for one in recorded.entries)
    step = recorded.step
    if step is not None:
        kept = tuple(replace(one, study=NAMELESS) for one in step.entries)
        step = replace(step, entries=kept)
    whole = RecordedStudy(named, recorded.trials, tuple(entries), step=step)
    document: Any = msgspec.json.decode(encode(whole))
    document["entries"].sort(key=compact)
    source = document["request"]["source"]
    if source["sha256"] is not None:
        source["target"] = PurePath(source["target"]).name
    return indented(_without_folders(document))


def study_part(study: Study) -> Any:
    """A study in plain values, as a ledger holds it.

    Raises:
        ValueError: it contradicts itself.
    """
    return part(study, StudyPart, study_of)


def study_of(found: Any) -> Study:
    """The study in such a part.

    Raises:
        ValueError: it is none.
    """
    study = record_in(found, StudyPart, Study)
    if IDENTIFIER.fullmatch(study.identifier) is None:
        raise ValueError(f"{study.identifier!r} names no study")
    if not study.request.regimes:
        raise ValueError("no regime is asked for")
    return study


def _without_folders(found: Any) -> Any:
    """Plain values with the folders of paths left out of every text."""
    if isinstance(found, str):
        if " " not in found and found.startswith(("/", "./", "../", "~/")):
            return PurePath(found).name or found
        return _FOLDERS.sub("", found)
    if isinstance(found, dict):
        return {key: _without_folders(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_without_folders(value) for value in found]
    return found
