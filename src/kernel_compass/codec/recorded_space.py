"""Recorded spaces as gzipped `kernel-compass/recorded-space/1` documents, and back."""

from __future__ import annotations

import gzip
import os
import zlib
from math import isfinite
from pathlib import Path

import msgspec

from kernel_compass.codec.finite import finite
from kernel_compass.codec.json_reading import file_bytes, read_json
from kernel_compass.codec.recorded_space_document import (
    SCHEMA,
    EnvironmentDocument,
    PointDocument,
    SpaceDocument,
    WorkloadDocument,
)
from kernel_compass.errors import UsageError
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.recorded_space import PointFailure, RecordedPoint, RecordedSpace
from kernel_compass.records.workload import Op, Workload

MOST_BYTES = 256 << 20
"""Of a document unpacked: what a small file could grow to has an end."""
_WRITE = "Record one with `python benchmarks/record_space.py` on a machine with a GPU."


def encode(space: RecordedSpace) -> bytes:
    """A space as gzip; the same space gives the same bytes."""
    e, w = space.environment, space.workload
    d = e.device
    document = SpaceDocument(
        schema=SCHEMA,
        workload=WorkloadDocument(w.op.value, w.heads, w.tokens, w.reduction, w.columns, w.name),
        format=space.format.name,
        implementation=space.implementation,
        method=space.method,
        total=space.total,
        environment=EnvironmentDocument(
            d.name, d.compute_capability, d.sm_count, d.l2_bytes,
            e.driver, e.torch, e.triton, e.python, e.kernel_compass, e.date,
        ),
        points=[_point_document(point) for point in space.points],
    )  # fmt: skip
    return gzip.compress(msgspec.json.encode(document) + b"\n", 9, mtime=0)


def decode(data: bytes) -> RecordedSpace:
    """The space that a document holds, gzipped or plain.

    Raises:
        UsageError: it is no such document, or says what cannot be.
    """
    try:
        document = read_json(_unpacked(data), SpaceDocument)
        if document.schema != SCHEMA:
            raise ValueError(f"its schema is {document.schema!r}")
        return _space(document)
    except (ValueError, UsageError) as error:
        raise UsageError(f"This is not a {SCHEMA} document: {error}.", _WRITE) from None


def read(path: Path) -> RecordedSpace:
    """The space in a file.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    try:
        return decode(file_bytes(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", _WRITE) from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.found}", error.remedy) from None


def write(path: Path, space: RecordedSpace) -> None:
    """Put a space in place of what the file held, all at once: a kill leaves one of the two."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(encode(space))
    beside.replace(path)


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    unpacker = zlib.decompressobj(31)
    try:
        found = unpacker.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"its compression is damaged ({error})") from None
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
    if not unpacker.eof:
        raise ValueError("it ends in the middle")
    return found


def _point_document(point: RecordedPoint) -> PointDocument:
    return PointDocument(
        config=dict(point.config),
        warm_us=finite(point.warm_us),
        cold_us=finite(point.cold_us),
        failure=point.failure and point.failure.value,
        detail=point.detail,
        error=finite(point.error),
        static={k: float(v) for k, v in point.static.items() if isfinite(v)},
    )


def _space(document: SpaceDocument) -> RecordedSpace:
    w, e = document.workload, document.environment
    sizes = (w.heads, w.tokens, w.reduction, w.columns)
    if min(sizes) < 1:
        raise ValueError(f"a dimension is {min(sizes)}")
    if document.total < len(document.points):
        raise ValueError(f"it has {len(document.points)} points of {document.total}")
    device = Device(e.device, e.compute_capability, e.sm_count, e.l2_bytes)
    return RecordedSpace(
        workload=Workload(Op(w.op), *sizes, w.name),
        format=NumberFormat.parse(document.format),
        implementation=document.implementation,
        environment=Environment(
            device, e.driver, e.torch, e.triton, e.python, e.kernel_compass, e.date
        ),
        points=tuple(_point(i, point) for i, point in enumerate(document.points)),
        method=document.method,
        total=document.total,
    )


def _point(index: int, d: PointDocument) -> RecordedPoint:
    """A point has both times or a failure, never neither and never both."""
    times = [t for t in (d.warm_us, d.cold_us) if t is not None]
    if len(times) != (0 if d.failure else 2):
        raise ValueError(f"point {index} has {len(times)} times and failure {d.failure}")
    if any(not (isfinite(t) and t > 0) for t in times):
        raise ValueError(f"point {index} takes {times} us")
    failure = PointFailure(d.failure) if d.failure else None
    return RecordedPoint(d.config, d.warm_us, d.cold_us, failure, d.detail, d.error, d.static)
