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


def test_a_size_that_parts_are_only_rounded_to_is_free_where_each_part_has_a_program(found):
    """Sums by parts of 21 shapes, compared with torch's, under grids that are numbers."""
    assert found["parts"] == [[True, 21]] * 4
    uses, objection = found["fewer programs"]
    assert uses == 0 and "(2, 2) is fixed, and depends on BLOCK" in objection
    assert found["grid that reads the parts"] == [True, 1]
    names, parts = found["free"]["in_parts"]
    assert "BLOCK" not in names and "SPLITS" in names
    assert parts == ["Part(size='BLOCK', count='SPLITS', axis=1)"]


def test_parts_are_as_many_as_programs_or_the_size_is_tied(found):
    names, parts = found["free"]["in_other_words"]
    assert "BLOCK" not in names and parts == ["Part(size='BLOCK', count=4, axis=0)"]
    names, parts = found["free"]["in_blocks"]  # all of the work rounded: it is no N-th of it
    assert "BLOCK" in names and parts == []
    assert "GRID" in found["free"]["strided"][0]


def test_a_grid_that_is_a_function_and_does_not_read_a_size_does_not_follow_it(found):
    right, block, objection = found["blind grid"]
    assert right and block == 16
    assert "is a function that does not read it, and depends on BLOCK" in objection


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
