"""Captures from disk: a folder that `profile --save` wrote becomes profiles, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from kernel_compass.errors import CaptureError, DamagedCapture, NotAMetricTable
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.capture_folder import CaptureFiles, CaptureFolder, stem_of
from kernel_compass.profiling.capture_index import INDEX_NAME, SAVE_AGAIN, SCHEMA, read_index
from kernel_compass.profiling.ncu_regimes import overlaid
from kernel_compass.records.profile import Profile, Regime, Source, SourceFormat

__all__ = ["INDEX_NAME", "SCHEMA", "CaptureFiles", "CaptureFolder", "read_saved", "stem_of"]

_FACTS = ("cache_control", "clock_control", "replay_mode", "ncu_version")
_REPAIR = "Correct or remove the entry, or profile again: kernel-compass profile --save FOLDER."
_RESTORE = "Put the file back beside captures.json, or profile again with --save FOLDER."


def read_saved(
    folder: str | Path, on_error: Callable[[CaptureError], None] | None = None
) -> tuple[Profile, ...]:
    """Read the captures that a profiling job kept, with their regimes.

    Args:
        folder: one with a `captures.json`.
        on_error: takes what is wrong with one of the captures, and the others are read; without it
            the first failure is raised.

    Raises:
        NotAMetricTable: there is no `captures.json`, it lists nothing, or a file it names is
            missing.
        DamagedCapture: `captures.json` is not one, or a capture is damaged.
        AmbiguousCapture: the numbers of a capture can be read in two ways.
    """
    folder = Path(folder)
    entries = read_index(folder)
    if not entries:
        raise NotAMetricTable(f"{folder / INDEX_NAME} lists no capture.", SAVE_AGAIN)
    profiles = []
    for number, entry in enumerate(entries, 1):
        try:
            profiles.append(_profile(folder, number, entry))
        except CaptureError as error:
            if on_error is None:
                raise
            on_error(error)
    return tuple(profiles)


def _profile(folder: Path, number: int, entry: dict[str, Any]) -> Profile:
    try:
        regime = Regime(str(entry.get("regime")))
        label = _text(entry, "label")
        facts = {key: _text(entry, key) for key in _FACTS}
        base = _table_name(entry, "capture")
        more = None if entry.get("residency") is None else _table_name(entry, "residency")
    except ValueError as error:
        found = f"{folder / INDEX_NAME} has a broken entry, number {number}: {error}."
        raise DamagedCapture(found, _REPAIR) from error
    profile = _read(folder, base, regime, label)
    if more is not None:
        profile = overlaid(profile, _read(folder, more, regime, label))
    path = str(folder / (more or base))
    source = Source(path=path, format=SourceFormat.NCU_RUN, regime=regime, **facts)
    return replace(profile, source=source)


def _text(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is None or (isinstance(value, str) and value.isprintable()):
        return value
    raise ValueError(f"{key} is no text")


def _table_name(entry: Mapping[str, Any], key: str) -> str:
    files = entry.get(key)
    if not isinstance(files, dict):
        raise ValueError(f"{key} names no files")
    for kind in ("csv", "report"):
        name = files.get(kind)
        if name is not None and not _is_plain(name):
            raise ValueError(f"the {kind} of {key} is {name!r:.80}, no plain file name")
    if files.get("csv") is None:
        raise ValueError(f"{key} names no csv")
    return str(files["csv"])


def _is_plain(name: object) -> bool:
    if not isinstance(name, str) or not name.isprintable():
        return False
    return name == PurePath(name).name and name not in ("", "..")


def _read(folder: Path, name: str, regime: Regime, label: str | None) -> Profile:
    try:
        return read_capture(folder / name, regime, label)
    except CaptureError as error:
        found = f"{folder / INDEX_NAME} names {name}, which cannot be used: {error.found}"
        raise type(error)(found, error.remedy or _RESTORE) from error
