"""Configurations of a user's Triton kernels, put in at the launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None or find_spec("triton") is None:
    pytest.skip("torch and triton are not installed", allow_module_level=True)

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def found():
    run = subprocess.run(
        [sys.executable, "-m", "api.applied_kernels"],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_a_grid_that_follows_the_configuration_gets_the_new_one(found):
    assert found["callable grid"] == [True, 64, 2] and found["uses"] == 1
    assert found["after"] == [True, 16, 7]
    assert found["heuristics"] == [True, 64]


def test_a_fixed_grid_is_left_alone_where_it_depends_on_the_configuration(found):
    right, block, objection = found["fixed grid"]
    assert right and block == 16 and "(7,) is fixed, and depends on BLOCK" in objection
    assert found["warps alone"] == [True, 16, 1]
    assert found["free of the grid"] == [True, 1]
    assert found["tied"] == [["BLOCK", "n"], ["columns"]]


def test_what_a_row_is_computed_from_says_nothing_of_the_grid(found):
    assert found["tied by values"] == [["columns"], ["BLOCK"], ["BLOCK"]]


def test_another_source_and_another_parameter_are_refused(found):
    assert found["another source"][0] == 16 and "not the one" in found["another source"][1]
    assert found["no parameter"][0] == 16 and "no parameter MISSING" in found["no parameter"][1]


def test_autotuned_kernels_keep_their_hooks(found):
    right, block, hooked, best = found["autotuned"]
    assert right and block == 32 and hooked == [32] and "BLOCK: 32" in best
    assert found["beside its choices"] == [True, 64, [64]]
    assert "leaves BLOCK open" in found["left open"]


def test_nothing_is_left(found):
    assert found["left"] == [0, True] and not found["best"]
