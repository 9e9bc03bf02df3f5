"""Recorded studies over a step, as `kernel-compass/step-recording/1` documents, gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_compass.codec.canonical import Upgrade, compact, plain, reshaped, versioned
from kernel_compass.codec.json_reading import file_bytes
from kernel_compass.errors import StudyError, shortened
from kernel_compass.records.step_loop import StepRecording

NAME = "kernel-compass/step-recording"
VERSION = 1
SCHEMA = f"{NAME}/{VERSION}"
UPGRADES: Mapping[int, Upgrade] = {}
MOST_BYTES = 256 << 20
"""Of a document unpacked."""
_REMEDY = "Record one with `kernel-compass optimize --entry FILE:FUNCTION --record FILE.json.gz`."


def encode(recording: StepRecording) -> bytes:
    """A recording as gzip; the same recording gives the same bytes.

    Formats stand in it where some were named: without, it is as recordings were before them.
    """
    found = plain(recording)
    if not recording.formats:
        del found["formats"]
    return gzip.compress(compact({"schema": SCHEMA, **found}) + b"\n", 9, mtime=0)


def decode(data: bytes, label: str = "This") -> StepRecording:
    """The recording that a document holds.

    Raises:
        StudyError: it is no such document.
    """
    found: dict[str, Any] = versioned(
        unpacked(data, label), NAME, VERSION, dict[str, Any], label, UPGRADES, _REMEDY
    )
    found.pop("schema")
    try:
        return reshaped(found, StepRecording)
    except ValueError as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None


def unpacked(data: bytes, label: str) -> bytes:
    """What gzip packed; anything else as it is.

    Raises:
        StudyError: it is cut off or too large.
    """
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        unpacker = zlib.decompressobj(31)
        found = unpacker.decompress(data, MOST_BYTES)
        if not unpacker.eof:
            raise ValueError("it is cut off, or larger than a recording can be")
    except (zlib.error, ValueError) as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None
    return found


def is_recording(path: Path) -> bool:
    """Whether a file is such a recording, by its schema; another JSON file is none.

    Raises:
        StudyError: it cannot be read.
    """
    return f'"{NAME}/'.encode() in unpacked(_bytes(path), shortened(str(path)))


def read(path: Path) -> StepRecording:
    """The recording in a file.

    Raises:
        StudyError: there is none, or it cannot be used.
    """
    return decode(_bytes(path), shortened(str(path)))


def _bytes(path: Path) -> bytes:
    try:
        return file_bytes(path)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        found = f"{shortened(str(path))} cannot be read: {said}."
        raise StudyError(found, _REMEDY) from None
