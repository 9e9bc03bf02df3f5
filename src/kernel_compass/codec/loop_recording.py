"""Recordings that the loop is run on, as `kernel-compass/loop-recording/1` documents, gzipped or
plain."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_compass.codec.canonical import Upgrade, compact, plain, reshaped, versioned
from kernel_compass.codec.json_reading import file_bytes
from kernel_compass.errors import StudyError, shortened
from kernel_compass.records.loop_recording import LoopRecording

NAME = "kernel-compass/loop-recording"
VERSION = 1
SCHEMA = f"{NAME}/{VERSION}"
UPGRADES: Mapping[int, Upgrade] = {}
MOST_BYTES = 256 << 20
"""Of a document unpacked."""
LEAST_US = 1e-3
"""No launch takes a nanosecond."""
_REMEDY = "Record one with `python benchmarks/record_loop.py` on a machine with a GPU."


def encode(recording: LoopRecording) -> bytes:
    """A recording as gzip; the same recording gives the same bytes."""
    document = {"schema": SCHEMA, **plain(recording)}
    return gzip.compress(compact(document) + b"\n", 9, mtime=0)


def decode(data: bytes, label: str = "This") -> LoopRecording:
    """The recording that a document holds.

    Raises:
        StudyError: it is no such document, or holds what cannot be.
    """
    try:
        if data[:2] == b"\x1f\x8b":
            unpacker = zlib.decompressobj(31)
            data = unpacker.decompress(data, MOST_BYTES)
            if not unpacker.eof:
                raise ValueError("it is cut off, or larger than a recording can be")
    except (zlib.error, ValueError) as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None
    found: dict[str, Any] = versioned(data, NAME, VERSION, dict[str, Any], label, UPGRADES, _REMEDY)
    found.pop("schema")
    try:
        return _checked(reshaped(found, LoopRecording))
    except ValueError as error:
        raise StudyError(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None


def read(path: Path) -> LoopRecording:
    """The recording in a file.

    Raises:
        StudyError: there is none, or it cannot be used.
    """
    try:
        data = file_bytes(path)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        found = f"{shortened(str(path))} cannot be read: {said}."
        raise StudyError(found, _REMEDY) from None
    return decode(data, shortened(str(path)))


def _checked(recording: LoopRecording) -> LoopRecording:
    if not recording.workloads:
        raise ValueError("it holds no workload")
    names = [one.workload.name for one in recording.workloads]
    if len(set(names)) < len(names):
        raise ValueError("it holds a workload twice")
    for one in recording.workloads:
        name = one.workload.name
        times = [*one.baseline_us.values(), *one.floors_us.values()]
        for candidate in one.candidates:
            if candidate.reason is None and not candidate.times_us:
                found = f"{name}: {candidate.implementation} has neither times nor a reason"
                raise ValueError(found)
            times += [*candidate.times_us.values(), *candidate.estimates_us.values()]
            times += candidate.floors_us.values()
        if not one.baseline_us or min(times) < LEAST_US:
            found = f"{name} has a time under {LEAST_US:g} us, or no baseline"
            raise ValueError(found)
    if not (0 <= recording.noise_pct < 50 and 0 <= recording.process_noise_pct < 50):
        raise ValueError("its noise is no percentage")
    return recording
