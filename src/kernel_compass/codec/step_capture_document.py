"""A captured step as a `kernel-compass/step-capture/1` document, and back.

The same capture is the same bytes: keys sorted, numbers finite, compressed without a time.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping

import msgspec

from kernel_compass.codec.calibration_document import EnvironmentDocument
from kernel_compass.codec.canonical import (
    Part,
    Upgrade,
    compact,
    plain,
    reshaped,
    versioned,
)
from kernel_compass.errors import CaptureError, DamagedCapture, StudyError
from kernel_compass.records.step_capture import StepCapture

NAME = "kernel-compass/step-capture"
VERSION = 1
SCHEMA = f"{NAME}/{VERSION}"
UPGRADES: Mapping[int, Upgrade] = {}
_REMEDY = "Write one with `kernel-compass capture --script FILE -o CAPTURE.json.gz`."
_GZIP = b"\x1f\x8b"
_MOST_BYTES = 1 << 30
"""Of a document, decompressed: more is none of ours."""


class LineDocument(Part):
    """A line of source."""

    file: str
    line: int
    function: str


class TensorDocument(Part):
    """A tensor."""

    shape: list[int]
    strides: list[int]
    dtype: str
    device: str
    storage: int
    constant: bool
    name: str | None
    unversioned: bool = False


class OpDocument(Part):
    """One of `ops`."""

    index: int
    name: str
    inputs: list[TensorDocument]
    outputs: list[TensorDocument]
    arguments: list[str]
    line: LineDocument | None
    module: str | None
    region: int | None
    writes: bool


class LaunchDocument(Part):
    """One of `launches`."""

    index: int
    after_op: int
    kernel: str
    source_sha256: str
    kernel_line: LineDocument
    grid: list[int]
    config: dict[str, int | bool | str]
    arguments: dict[str, TensorDocument | int | float | bool | str | None]
    choices: list[dict[str, int | bool | str]]
    line: LineDocument | None
    module: str | None
    region: int | None
    tied: list[str] = msgspec.field(default_factory=list)


class RegionDocument(Part):
    """One of `regions`."""

    index: int
    kind: str
    name: str
    line: LineDocument | None
    calls: int


class KernelDocument(Part):
    """One of `kernels`."""

    name: str
    time_us: float
    launches: float
    op: int | None
    launch: int | None
    region: int | None
    limiter: str | None
    floor_us: float | None
    line: LineDocument | None
    gap_us: float | None
    counted: bool = False
    floor_basis: str | None = None


class NotHandledDocument(Part):
    """One of `not_handled`."""

    what: str
    why: str
    line: LineDocument | None


class CaptureDocument(Part):
    """The whole document."""

    schema: str
    program: str
    step: str
    environment: EnvironmentDocument
    ops: list[OpDocument]
    launches: list[LaunchDocument]
    regions: list[RegionDocument]
    kernels: list[KernelDocument]
    steps: int
    step_us: float | None
    idle_us: float | None
    in_graph: bool
    not_handled: list[NotHandledDocument]
    notes: list[str]
    files: dict[str, str]
    modules: dict[str, str] = msgspec.field(default_factory=dict)
    inside: list[OpDocument] = msgspec.field(default_factory=list)
    packages: dict[str, str] = msgspec.field(default_factory=dict)


def encode(capture: StepCapture) -> bytes:
    """A capture on one line of JSON with a final newline.

    Raises:
        CaptureError: it contradicts itself, or holds a number that is not finite.
    """
    try:
        found = {"schema": SCHEMA, **plain(capture)}
        if not capture.inside:  # as it was before it could hold any
            del found["inside"]
        reshaped(found, CaptureDocument)
        check(capture)
    except ValueError as error:
        raise CaptureError(f"The capture cannot be written: {error}.") from None
    return compact(found) + b"\n"


def packed(capture: StepCapture) -> bytes:
    """The same, compressed.

    Raises:
        CaptureError: as of `encode`.
    """
    return gzip.compress(encode(capture), compresslevel=6, mtime=0)


def decode(data: bytes, label: str = "This") -> StepCapture:
    """The capture that a document of this or an older version holds, compressed or not.

    Raises:
        DamagedCapture: it is no such document, or a newer version's.
    """
    try:
        document = versioned(
            _unpacked(data), NAME, VERSION, CaptureDocument, label, UPGRADES, _REMEDY
        )
        found = plain(document)
        del found["schema"]
        capture = reshaped(found, StepCapture)
        check(capture)
    except StudyError as error:
        raise DamagedCapture(error.found, error.remedy) from None
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise DamagedCapture(f"{label} is not a {SCHEMA} document: {error}.", _REMEDY) from None
    return capture


def check(capture: StepCapture) -> None:
    """No capture whose parts name what is not there.

    Raises:
        ValueError: it is one.
    """
    numbered = {
        "operators": [one.index for one in capture.ops],
        "launches": [one.index for one in capture.launches],
        "regions": [one.index for one in capture.regions],
    }
    for what, indices in numbered.items():
        if indices != list(range(len(indices))):
            raise ValueError(f"its {what} are not numbered in order")
    inside = [*(one.region for one in (*capture.ops, *capture.inside))]
    inside += [one.region for one in capture.launches]
    for place in inside:
        _check_reference(place, len(capture.regions), "the region of an operator or launch")
    for kernel in capture.kernels:
        _check_reference(kernel.op, len(capture.ops), f"the operator of {kernel.name}")
        _check_reference(kernel.launch, len(capture.launches), f"the launch of {kernel.name}")
        _check_reference(kernel.region, len(capture.regions), f"the region of {kernel.name}")
        times = (kernel.time_us, kernel.launches, kernel.gap_us or 0.0, kernel.floor_us or 0.0)
        if min(times) < 0:
            raise ValueError(f"{kernel.name} has a negative time")
    if capture.steps < 0 or min(capture.step_us or 0.0, capture.idle_us or 0.0) < 0:
        raise ValueError("a time or a count is negative")


def _check_reference(at: int | None, count: int, what: str) -> None:
    if at is not None and not 0 <= at < count:
        raise ValueError(f"{what} is {at} of {count}")


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    reader = zlib.decompressobj(31)
    found = reader.decompress(data, _MOST_BYTES)
    if reader.unconsumed_tail:
        raise ValueError(f"it holds more than {_MOST_BYTES >> 20} MiB")
    if not reader.eof:
        raise ValueError("it is cut off")
    if reader.unused_data:
        raise ValueError("something follows it")
    return found
