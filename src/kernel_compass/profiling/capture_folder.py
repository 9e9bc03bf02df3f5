"""Captures on their way to disk: reports and tables of a job, and the index that describes them.

A job never overwrites another's files: where `<stem>_<run>` exists already, the whole job takes
`<stem>-2`, `<stem>-3`, ... The first file of a job reserves its stem. Files appear under their
names only when they are whole. `captures.json` is appended to, and replaced as a whole. Jobs that
save at the same time take turns.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from kernel_compass.errors import CaptureError, UsageError
from kernel_compass.profiling.capture_index import INDEX_NAME, locked, read_index, write_index
from kernel_compass.records.profile import Source
from kernel_compass.records.request import ProfileRequest

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
    """The folder that keeps a job's captures; jobs may share one at the same time.

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
        self._stem: str | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be created: {error.strerror}.") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"{folder} cannot be written.", "Name another folder.")
        try:
            self._indexed()
        except CaptureError as error:
            raise UsageError(error.found, "Name another folder for the captures.") from error

    def _indexed(self) -> list[dict[str, Any]]:
        """What the index lists now: another job may have added to it."""
        return read_index(self._folder) if (self._folder / INDEX_NAME).exists() else []

    def keep(self, name: str, report: Path, table: Path) -> CaptureFiles:
        """Copy a run's files into the folder; a run that several regimes share, once.

        Raises:
            OSError: they cannot be kept; nothing of this run is left in the folder.
        """
        if table not in self._files:
            with tempfile.TemporaryDirectory(
                dir=self._folder, prefix=".saving-", ignore_cleanup_errors=True
            ) as work:
                whole = [Path(work) / "run.csv"]
                shutil.copyfile(table, whole[0])
                if report.exists():
                    whole.append(Path(work) / "run.ncu-rep")
                    shutil.copyfile(report, whole[1])
                with locked(self._folder):
                    kept = self._named(name, whole)
            self._files[table] = CaptureFiles(kept[1] if len(kept) > 1 else None, kept[0])
        return self._files[table]

    def _named(self, name: str, whole: Sequence[Path]) -> list[Path]:
        """Give files their names; the first ones reserve the job's stem."""
        tried: set[str] = set()
        while True:
            stem = self._stem or self._free_stem(tried)
            try:
                kept = _moved(whole, self._folder / f"{stem}_{name}")
            except FileExistsError:  # another host was faster
                if self._stem:
                    raise
                tried.add(f"{stem}_")
                continue
            self._stem = stem
            return kept

    def _free_stem(self, tried: set[str]) -> str:
        wanted = stem_of(self._request)
        taken = tried | {path.name for path in self._folder.iterdir()}
        taken |= {f"{entry.get('label')}_" for entry in self._unless_damaged()}
        number, stem = 1, wanted
        while any(name.startswith(f"{stem}_") for name in taken):
            number += 1
            stem = f"{wanted}-{number}"
        return stem

    def _unless_damaged(self) -> list[dict[str, Any]]:
        try:
            return self._indexed()
        except CaptureError as error:
            raise OSError(error.found) from error

    def add(self, source: Source, files: Sequence[CaptureFiles]) -> None:
        """Write down what a regime's files are: its capture, then its residency run if any.

        Raises:
            OSError: the index cannot be written, or is not one any more; it is left as it was.
        """
        base, *more = files
        entry = {
            "label": self._stem,
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
        }
        with locked(self._folder):
            entries = self._unless_damaged()
            own = [at for at, one in enumerate(entries, 1) if one.get("label") == self._stem]
            entries.insert(own[-1] if own else len(entries), entry)  # a job's stay together
            write_index(self._folder, entries)


def _names(files: CaptureFiles) -> dict[str, str | None]:
    return {"csv": files.table.name, "report": files.report.name if files.report else None}


def _moved(whole: Sequence[Path], base: Path) -> list[Path]:
    """Move files to `<base><suffix>`, all or none; an existing file is never replaced."""
    kept: list[Path] = []
    try:
        for path in whole:
            target = base.with_name(base.name + path.suffix)
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            kept.append(target)
        for path, target in zip(whole, kept, strict=True):
            path.replace(target)
    except BaseException:
        for target in kept:
            target.unlink(missing_ok=True)
        raise
    return kept
