"""Gluon's names change between releases of Triton: the plain kernel takes over where they did.

Each check runs in a process of its own, and again with the Triton that the environment variable
KERNEL_COMPASS_OTHER_TRITON names: a folder of `pip install --no-deps --target FOLDER triton==...`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import kernel_compass
from kernel_compass.kernels.gluon_support import GLUON_RELEASES, gluon_objection

pytest.importorskip("torch", reason="kernels need torch")
pytest.importorskip("triton", reason="kernels need triton")

OTHER = os.environ.get("KERNEL_COMPASS_OTHER_TRITON", "")
SOURCE = Path(kernel_compass.__file__).parents[1]
needs_other = pytest.mark.skipif(not OTHER, reason="KERNEL_COMPASS_OTHER_TRITON names none")
both = pytest.mark.parametrize(
    "folder",
    [
        pytest.param("", id="installed"),
        pytest.param(OTHER, id="other", marks=needs_other),
    ],
)


@cache
def child(folder, *arguments):
    """What a process with the Triton of a folder says."""
    path = os.pathsep.join(filter(None, (folder, str(SOURCE))))
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": ""}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("triton_child.py")), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def is_listed(said):
    return said["triton"].startswith(tuple(f"{release}." for release in GLUON_RELEASES))


@both
def test_gluon_is_used_with_the_releases_that_are_listed(folder):
    said = child(folder, "choices")
    assert said["supports"] is None and said["same"]
    if is_listed(said):
        assert said["objection"] is said["note"] is said["refused"] is None
        assert said["space"] == ["mma", "plain", "wgmma"]
        assert said["compiled"] in (["decode_mma"], ["decode_wgmma"])
    else:
        assert said["triton"] in said["objection"] and said["compiled"] == ["decode_plain"]


@both
@pytest.mark.parametrize(
    "damage, reason",
    [("blocked", "cannot import name"), ("moved", "Error"), ("unlisted", "3.99.0")],
)
def test_without_gluon_the_plain_kernel_is_the_default_and_says_why(folder, damage, reason):
    said = child(folder, "choices", damage)
    assert said["supports"] is None
    assert said["space"] == ["plain"] and said["same"] and said["compiled"] == ["decode_plain"]
    assert said["objection"]
    if is_listed(said) or damage == "unlisted":
        assert reason in said["objection"]
    assert said["note"] == f"own_decode ran its plain kernel: {said['objection']}"
    assert said["objection"] in said["refused"] and "`space`" in said["refused"]


def test_other_architectures_and_the_interpreter_are_not_for_gluon(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "interpreter" in gluon_objection((9, 0))
    for capability in (None, (8, 0), (8, 9), (10, 0), (12, 0)):
        assert "9.x" in gluon_objection(capability)


@both
def test_decode_kernels_compile_and_the_gluon_ones_use_the_units_they_are_for(folder):
    said = child(folder, "compile")
    units = units_of(said)
    if said["objection"] is None:
        assert units["decode_mma", (9, 0)] == ["HMMA"] * 6
        assert units["decode_wgmma", (9, 0)] == ["HGMMA"] * 6
    for capability in ((8, 0), (9, 0), (10, 0)):
        assert len(units["decode_plain", capability]) >= 2
        assert None not in units["decode_plain", capability]


@needs_other
def test_the_other_kernels_compile_with_another_triton():
    units = units_of(child(OTHER, "compile", "wider"))
    for capability in ((8, 0), (9, 0), (10, 0)):
        for kernel in ("matrix_product", "absorb_and_rotate"):
            assert units[kernel, capability] and None not in units[kernel, capability]
    assert units["product_and_groups", (9, 0)] and units["product_and_groups", (10, 0)]


def units_of(said):
    """Matrix units of the kernels, by name and architecture."""
    units = {}
    for _, capability, kernel, unit in said["kernels"]:
        units.setdefault((kernel, tuple(capability)), []).append(unit)
    return units
