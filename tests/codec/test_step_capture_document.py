"""Captured steps as documents: the same bytes, strict reading, the recorded one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_compass.analysis.step_shares import workloads_of
from kernel_compass.codec.step_capture_document import SCHEMA, decode, encode, packed
from kernel_compass.errors import CaptureError, DamagedCapture
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_capture import (
    NotHandled,
    RegionKind,
    SourceLine,
    StepCapture,
    StepKernel,
    StepLaunch,
    StepOp,
    StepRegion,
    StepTensor,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "step_decoder_block_cpu.json.gz"
LINE = SourceLine("m.py", 3, "M.forward")
TENSOR = StepTensor((2, 3), (3, 1), "bfloat16", "cuda", 7, True, "w")
CAPTURE = StepCapture(
    program="m.py",
    step="M.forward",
    environment=Environment(Device("NVIDIA H200", "9.0", 132, 62914560), torch="2.11"),
    ops=(StepOp(0, "aten::mm", (TENSOR, TENSOR), (TENSOR,), ("alpha=1",), LINE, "a", 0, True),),
    launches=(
        StepLaunch(
            index=0,
            after_op=1,
            kernel="softmax",
            source_sha256="0" * 64,
            kernel_line=LINE,
            grid=(4,),
            config={"BLOCK": 64, "EXACT": True, "num_warps": 4},
            arguments={"x": TENSOR, "n": 3, "eps": 1e-5, "flag": False, "no": None, "s": "text"},
            choices=({"BLOCK": 32}, {"BLOCK": 64}),
        ),
    ),
    regions=(StepRegion(0, RegionKind.COMPILED, "norm", LINE, 2),),
    kernels=(StepKernel("gemm", 4.5, 1.0, 0, None, None, "dram_bound", 3.0, LINE, 0.5),),
    steps=5,
    step_us=10.0,
    idle_us=5.5,
    not_handled=(NotHandled("a sub-process", "not seen", LINE),),
    notes=("a note",),
    files={"m.py": "1" * 64},
)


def test_there_and_back() -> None:
    assert decode(encode(CAPTURE)) == CAPTURE
    assert decode(packed(CAPTURE)) == CAPTURE
    assert packed(CAPTURE) == packed(replace(CAPTURE))
    assert json.loads(encode(CAPTURE))["schema"] == SCHEMA


def test_the_recorded_capture() -> None:
    """Recorded by `kernel-compass capture --script examples/decoder_block.py` without a GPU."""
    found = decode(GOLDEN.read_bytes())
    assert decode(encode(found)) == found  # fields that came later have their defaults
    assert not any(one.unversioned for op in found.ops for one in op.inputs)
    assert found.step == "DecoderBlock.forward"
    shapes = [one.shape_text for one in workloads_of(found).values()]
    assert shapes == [
        "linear 16x64x64",
        *["linear 16x32x64"] * 2,
        "linear 16x64x64",
        *["linear 16x128x64"] * 2,
        "linear 16x64x128",
    ]
    weights = [found.ops[at].inputs[1].name for at in workloads_of(found)]
    assert weights == ["q", "k", "v", "o", "gate", "up", "down"]
    assert all(found.ops[at].inputs[1].constant for at in workloads_of(found))
    cache = {t.name: t for op in found.ops for t in op.inputs}["key_cache"]
    assert not cache.constant


def change(path: str, value: Any) -> bytes:
    document = json.loads(encode(CAPTURE))
    *way, last = path.split(".")
    place = document
    for part in way:
        place = place[int(part)] if part.isdecimal() else place[part]
    place[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", "kernel-compass/step-capture/2", "newer kernel-compass"),
        ("schema", "kernel-compass/study/1", "its schema"),
        ("surprise", 1, "surprise"),
        ("ops.0.surprise", 1, "surprise"),
        ("ops.0.index", 1, "not numbered"),
        ("ops.0.region", 1, "region"),
        ("ops.0.inputs.0.shape", "3", "shape"),
        ("kernels.0.op", 4, "the operator of gemm is 4 of 1"),
        ("kernels.0.launch", 1, "the launch of gemm"),
        ("kernels.0.time_us", -1.0, "negative"),
        ("kernels.0.time_us", float("nan"), "not a kernel-compass"),
        ("step_us", -1.0, "negative"),
        ("regions.0.kind", "other", "other"),
        ("launches.0.config", {"BLOCK": [1]}, "config"),
        ("not_handled", None, "not_handled"),
    ],
)
def test_what_is_refused(path: str, value: Any, said: str) -> None:
    with pytest.raises(DamagedCapture, match=said):
        decode(change(path, value))


def test_damaged_files() -> None:
    whole = packed(CAPTURE)
    for data in (
        b"",
        b"{}",
        b"[]",
        whole[:-9],
        whole[:40],
        whole + b"more",
        b"\x1f\x8b" + b"x" * 30,
    ):
        with pytest.raises(DamagedCapture):
            decode(data)


def test_what_cannot_be_written() -> None:
    kernel = CAPTURE.kernels[0]
    for wrong in (
        replace(CAPTURE, step_us=float("inf")),
        replace(CAPTURE, kernels=(replace(kernel, op=9),)),
        replace(CAPTURE, notes=("\ud800",)),
    ):
        with pytest.raises(CaptureError, match="cannot be written"):
            encode(wrong)
