"""Recorded spaces there and back, and what is refused."""

from __future__ import annotations

import gzip
import json

import pytest

from kernel_compass.codec import recorded_space as codec
from kernel_compass.errors import UsageError
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.recorded_space import PointFailure, RecordedPoint, RecordedSpace
from kernel_compass.records.workload import Op, Workload

SPACE = RecordedSpace(
    Workload(Op.BMM, 128, 16, 128, 512, "q_absorb"),
    NumberFormat.parse("w8a16_fp8"),
    "own_decode",
    Environment(Device("NVIDIA H200", "9.0", 132, 62914560), "580", "2.11", "3.6.0"),
    (
        RecordedPoint({"kernel": "mma", "rows": 128, "hold": True}, 3.5, 4.25, error=0.001),
        RecordedPoint(
            {"kernel": "wgmma", "rows": 64, "hold": False},
            failure=PointFailure.COMPILE,
            detail="too much shared memory",
            static={"registers": 168.0},
        ),
    ),
    "slopes",
    5,
)
OLD = b"""{"schema": "kernel-compass/recorded-space/1", "workload": {"op": "linear", "heads": 1,
"tokens": 1, "reduction": 64, "columns": 32}, "format": "bf16", "implementation": "own_decode",
"method": "slopes", "total": 1, "environment": {}, "points": [{"config": {"rows": 32},
"warm_us": 2.0, "cold_us": 3.0}]}"""
"""As version 1 was first written: it loads for ever."""


def changed(change):
    document = json.loads(gzip.decompress(codec.encode(SPACE)))
    change(document)
    return json.dumps(document).encode()


def test_there_and_back():
    assert codec.decode(codec.encode(SPACE)) == SPACE
    assert codec.encode(SPACE) == codec.encode(codec.decode(codec.encode(SPACE)))
    assert not SPACE.complete


def test_the_first_version_loads():
    found = codec.decode(OLD)
    assert found.points[0].time_us(Regime.WARM) == 2.0
    assert found.points[0].time_us(None) == pytest.approx(6**0.5)
    assert found.complete


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(schema="kernel-compass/recorded-space/9"), "recorded-space/9"),
        (lambda d: d.update(total=1), "2 points of 1"),
        (lambda d: d["points"][0].pop("cold_us"), "point 0 has 1 times"),
        (lambda d: d["points"][0].update(failure="launch"), "point 0 has 2 times"),
        (lambda d: d["points"][0].update(warm_us=-1.0), "-1.0"),
        (lambda d: d["points"][1].update(failure="tired"), "tired"),
        (lambda d: d["workload"].update(heads=0), "dimension is 0"),
        (lambda d: d.update(format="w3"), "w3"),
        (lambda d: d.update(points=7), "points"),
    ],
)
def test_refuses(change, says):
    with pytest.raises(UsageError, match=says):
        codec.decode(changed(change))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\x1f\x8b", codec.encode(SPACE)[:-20], b"\x1f\x8b" + b"x" * 50]
)
def test_damaged_files_are_refused(tmp_path, data):
    file = tmp_path / "space.json.gz"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=r"space\.json\.gz"):
        codec.read(file)


def test_a_file_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "deep" / "space.json.gz"
    codec.write(file, SPACE)
    codec.write(file, SPACE)
    assert [each.name for each in file.parent.iterdir()] == ["space.json.gz"]
    assert codec.read(file) == SPACE
    with pytest.raises(UsageError, match="absent"):
        codec.read(tmp_path / "absent")
