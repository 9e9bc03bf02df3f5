"""Compiling launches without a GPU: what is read of cubins, and what Triton is left as."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import kernel_compass
from kernel_compass.errors import MissingDependency, UsageError
from kernel_compass.kernels import cubin
from kernel_compass.kernels.static_compile import StaticFigures, triton_version

if find_spec("torch") is None or find_spec("triton") is None:
    pytest.skip("compiling kernels needs torch and triton", allow_module_level=True)

SOURCES = str(Path(kernel_compass.__file__).parents[1])


def child(*command, interpret=False):
    """A program that may compile, whatever this process's tests chose."""
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = SOURCES
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    done = child(str(Path(__file__).parent / "static_samples.py"), str(folder))
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "figures.json").read_text())


@pytest.fixture(scope="module")
def figures(samples):
    return samples[1]["figures"]


def test_registers_and_stack_are_what_cuobjdump_says(samples):
    folder, said = samples
    assert len(said["cubins"]) >= 8
    for one in said["cubins"]:
        found = cubin.resources((folder / one["file"]).read_bytes())
        registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", one["usage"])[0]
        assert set(found) == {one["name"]}
        assert found[one["name"]] == cubin.Resources(int(registers), int(stack))


def test_the_code_is_that_of_the_architecture(figures):
    opcodes = {"8.0": "HMMA", "9.0": "HGMMA", "10.0": "UTCHMMA"}
    units = {"8.0": "mma.sync", "9.0": "wgmma.mma_async", "10.0": "tcgen05.mma"}
    for each, opcode in opcodes.items():
        (found,) = figures[f"product {each}"]
        assert found["instructions"][opcode] > 0
        assert found["matrix_instruction"].startswith(units[each])
    assert ".f32.bf16.bf16" in figures["product 9.0"][0]["matrix_instruction"]
    assert figures["copy"][0]["matrix_instruction"] is None
    assert figures["product 9.0"][0]["capability"] == [9, 0]


def test_arguments_are_specialized_as_for_a_launch(figures):
    """Wide loads want an aligned pointer and a mask that is whole for as many elements."""
    assert "LDG.128" in figures["copy"][0]["instructions"]
    assert "LDG.16" in figures["copy, askew"][0]["instructions"]
    assert "LDG.16" in figures["copy, odd"][0]["instructions"]
    assert figures["copy by warmup"] == figures["copy"]


def test_every_kernel_of_a_call_counts_once(figures):
    assert [one["kernel"] for one in figures["two"]] == ["copy", "product"]


def test_options_of_the_launch_count(figures):
    assert figures["product, eight warps"][0]["warps"] == 8
    tight, free = figures["product, few registers"][0], figures["product 8.0"][0]
    assert tight["registers"] <= 40 < free["registers"]
    assert tight["frame_bytes"] > 0 and tight["spills"] > 0
    assert free["frame_bytes"] == free["spills"] == 0
    assert free["shared_bytes"] > 0 and figures["copy"][0]["shared_bytes"] == 0


def test_a_call_that_compiles_nothing_is_refused(samples):
    nothing, passed_on = samples[1]["refused"]
    assert nothing.startswith("No kernel was launched.")
    assert passed_on == "in a launcher"


def test_a_process_whose_kernels_are_interpreted_is_refused():
    code = "from kernel_compass.kernels.static_compile import compile_for as c; c(print, (9, 0))"
    done = child("-c", code, interpret=True)
    assert "UsageError" in done.stderr and "Unset TRITON_INTERPRET" in done.stderr


def test_a_cut_or_mangled_cubin_is_an_error_or_read_as_far_as_it_goes(samples):
    folder, said = samples
    whole = (folder / said["cubins"][0]["file"]).read_bytes()
    draw, refused = random.Random(3), 0
    for _ in range(300):
        cut = whole[: draw.randrange(len(whole))]
        try:
            assert cubin.resources(cut) == cubin.resources(whole)  # program headers come last
        except UsageError as error:
            refused += "no whole cubin" in str(error)
    assert refused > 200
    for _ in range(300):
        mangled = bytearray(whole)
        for _ in range(8):
            mangled[draw.randrange(len(mangled))] = draw.randrange(256)
        try:
            cubin.resources(bytes(mangled))
        except UsageError:
            continue


@pytest.mark.parametrize("text", [b"", b"\x7fELF", b"#!/bin/sh", b"\x7fELF\x01\x01" + bytes(99)])
def test_what_is_no_cubin_is_refused(text):
    with pytest.raises(UsageError, match=r"no whole cubin.*Compile"):
        cubin.resources(text)


LISTING = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_TID.X ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/              @UP1 LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;
        /*0040*/                   LDG.E R8, desc[UR6][R2.64] ;
        /*0050*/                   LDG.E.U16 R8, desc[UR6][R2.64] ;
        /*0060*/                   STL.64 [R1], R2 ;
        /*0070*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24 ;
.L_x_1:
        /*0080*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0090*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*00a0*/                   EXIT ;
"""


def test_instructions_are_counted_by_class_and_width():
    assert cubin.instructions(LISTING) == {
        "BRA": 1, "EXIT": 1, "HGMMA": 1, "HMMA": 2, "LDC": 1, "LDG.128": 1, "LDG.16": 1,
        "LDG.32": 1, "S2R": 1, "STL.64": 1,
    }  # fmt: skip
    assert StaticFigures("k", (9, 0), 4, 32, 8, 0, None, cubin.instructions(LISTING)).spills == 1


def test_without_a_listing_spills_are_unknown():
    assert StaticFigures("k", (9, 0), 4, 32, 8, 0, None, None).spills is None


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependency, match=r"Triton is not installed.*pip install"):
        triton_version()
