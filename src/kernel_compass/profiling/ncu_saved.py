"""Captures on disk: reports and tables of a job, and `captures.json`, which says what they are.

A job never overwrites another's files: where `<stem>_<run>` exists already, the whole job takes
`<stem>-2`, `<stem>-3`, ... `captures.json` is appended to, and replaced as a whole (atomically).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from kernel_compass.errors import DamagedCapture, NotAMetricTable, UsageError
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.ncu_regimes import overlaid
from kernel_compass.records.profile import Profile, Regime, Source, SourceFormat
from kernel_compass.records.request import ProfileRequest

INDEX_NAME = "captures.json"
SCHEMA = "kernel-compass/captures/1"

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*$")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def stem_of(request: ProfileRequest) -> str:
    """A file stem for a job: its label, else the script, module or executable."""
    name = request.label or _target_name(request.command)
    return _UNSAFE.sub("_", name).strip("._")[:80] or "target"


def _target_name(command: Sequence[str]) -> str:
    program = PurePath(command[0]).name
    if not _INTERPRETER.match(program):
        return PurePath(program).stem
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, program)
        if word == "-c":
            break
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            return PurePath(word).stem
    return program


@dataclass(frozen=True)
class CaptureFiles:
    """One run's files."""

    report: Path | None
    table: Path


class CaptureFolder:
    """The folder that keeps a job's captures.

    Args:
        folder: created where it is missing.
        request: what is profiled.
        gpus: names of the machine's GPUs.

    Raises:
        UsageError: the folder cannot be written, or its `captures.json` is another program's.
    """

    def __init__(self, folder: Path, request: ProfileRequest, gpus: Sequence[str]) -> None:
        self._folder = folder
        self._request = request
        self._gpus = list(gpus)
        self._files: dict[Path, CaptureFiles] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be created: {error.strerror}.") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder} cannot be written.", "Name another folder.")
        try:
            self._indexed()
        except DamagedCapture as error:
            raise UsageError(error.found, "Name another folder for the captures.") from error
        self.stem = self._free_stem()

    def _indexed(self) -> list[dict[str, Any]]:
        """What the index lists now: another job may have added to it."""
        return _entries(self._folder) if (self._folder / INDEX_NAME).exists() else []

    def _free_stem(self) -> str:
        wanted = stem_of(self._request)
        taken = {path.name for path in self._folder.iterdir()}
        number, stem = 1, wanted
        while any(name.startswith(f"{stem}_") for name in taken):
            number += 1
            stem = f"{wanted}-{number}"
        return stem

    def keep(self, name: str, report: Path, table: Path) -> CaptureFiles:
        """Copy a run's files into the folder; a run that several regimes share, once."""
        if table not in self._files:
            kept = self._folder / f"{self.stem}_{name}.csv"
            shutil.copyfile(table, kept)
            kept_report = None
            if report.exists():
                kept_report = kept.with_suffix(".ncu-rep")
                shutil.copyfile(report, kept_report)
            self._files[table] = CaptureFiles(kept_report, kept)
        return self._files[table]

    def add(self, source: Source, files: Sequence[CaptureFiles]) -> None:
        """Write down what a regime's files are: its capture, then its residency run if any."""
        base, *more = files
        entries = [
            *self._indexed(),
            {
                "label": self.stem,
                "argv": list(self._request.command),
                "regime": source.regime.value,
                "cache_control": source.cache_control,
                "clock_control": source.clock_control,
                "replay_mode": source.replay_mode,
                "ncu_version": source.ncu_version,
                "gpus": self._gpus,
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "capture": _names(base),
                "residency": _names(more[0]) if more else None,
            },
        ]
        index = self._folder / INDEX_NAME
        document = {"schema": SCHEMA, "captures": entries}
        new = index.with_suffix(f".{os.getpid()}.tmp")
        new.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        new.replace(index)


def _names(files: CaptureFiles) -> dict[str, str | None]:
    return {"csv": files.table.name, "report": files.report.name if files.report else None}


def read_saved(folder: str | Path) -> tuple[Profile, ...]:
    """Read the captures that a profiling job kept, with their regimes.

    Args:
        folder: one with a `captures.json`.

    Raises:
        NotAMetricTable: there is no `captures.json`, or a file it names is missing.
        DamagedCapture: `captures.json` is not one, or a capture is damaged.
    """
    folder = Path(folder)
    return tuple(_profiles(folder, _entries(folder)))


def _entries(folder: Path) -> list[dict[str, Any]]:
    index = folder / INDEX_NAME
    try:
        document = json.loads(index.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAMetricTable(
            f"{index} cannot be read: {error.strerror}.",
            "kernel-compass profile --save FOLDER writes such a folder.",
        ) from error
    except ValueError as error:
        raise DamagedCapture(f"{index} is no JSON: {error}.") from error
    captures = document.get("captures") if isinstance(document, dict) else None
    if not isinstance(captures, list) or document.get("schema") != SCHEMA:
        raise DamagedCapture(f"{index} is not of the schema {SCHEMA}.")
    return captures


def _profiles(folder: Path, entries: list[dict[str, Any]]) -> Iterator[Profile]:
    for entry in entries:
        try:
            regime = Regime(entry["regime"])
            base = folder / PurePath(entry["capture"]["csv"]).name
            more = entry.get("residency")
            residency = folder / PurePath(more["csv"]).name if more else None
            facts = {key: entry.get(key) for key in ("cache_control", "clock_control")}
            facts |= {key: entry.get(key) for key in ("replay_mode", "ncu_version")}
            label = entry.get("label")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedCapture(f"{folder / INDEX_NAME} has a broken entry: {error!r}.") from error
        profile = read_capture(base, regime, label)
        if residency is not None:
            profile = overlaid(profile, read_capture(residency, regime, label))
        path = str(residency or base)
        source = Source(path=path, format=SourceFormat.NCU_RUN, regime=regime, **facts)
        yield replace(profile, source=source)
