"""Configurations of autotuned kernels are found in a file, and pinned one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")

from api.tuned_problem import TUNED  # noqa: E402

from kernel_compass.api.problem_files import load_problem  # noqa: E402
from kernel_compass.kernels.static_compile import compile_for  # noqa: E402

SRC = Path(__file__).parents[2] / "src"
PREFIX = "twice_and."
FIRST = {"BLOCK": 16, "num_warps": 1, "num_stages": 1}
HOOKED = {"BLOCK": 32, "num_warps": 2, "num_stages": 3}
LARGE = {"BLOCK": 64, "num_warps": 8, "num_stages": 3, "maxnreg": 64}


def named(config):
    return {PREFIX + name: value for name, value in config.items()}


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    """In an interpreter whose kernels Triton interprets."""
    path = tmp_path_factory.mktemp("tuned") / "problem.py"
    path.write_text(TUNED)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("tuned_child.py")), str(path)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_space_is_the_autotuners_each_once(child):
    assert child["spaces"]["tuned"] == [named(FIRST), named(HOOKED), named(LARGE)]
    assert child["kernel"] == ["twice_and", ["total"], ["BLOCK"]]


def test_listed_configurations_are_tried_with_each_of_the_kernel(child):
    space = child["spaces"]["in_parts"]
    assert len(space) == 6
    assert space[0] == {"parts": 1, **named(FIRST)}
    assert child["spaces"]["named"] == [named(HOOKED)]  # the file says which


def test_parameters_that_are_a_kernels_are_varied(child):
    space = child["spaces"]["by_parameters"]
    assert space[0] == {"BLOCK": 32, "num_warps": 4}
    assert {one["BLOCK"] for one in space} == {16, 32, 64}
    assert {one["num_warps"] for one in space} == {2, 4, 8}
    assert len(space) == 9
    assert child["spaces"]["of_torch"] == [{}]


@pytest.mark.parametrize("name", ["first", "hooked", "large", "parts", "parameters"])
def test_a_pinned_kernel_is_judged_like_any_other(child, name):
    assert child["said"][name][0] is None, child["said"][name]


def test_hooks_of_the_pinned_configuration_run_and_no_others(child):
    assert child["hooks"] == {"first": [], "hooked": [32], "large": []}


def test_what_the_kernel_prunes_for_these_arguments_is_not_launched(child):
    reason, detail = child["said"]["small"]
    assert reason == "not_supported"
    assert "prune_configs_by" in detail and "BLOCK: 64" in detail
    assert child["asked_with"] == [4]  # it chooses among all, as without a pin


def test_the_autotuner_is_as_it_was(child):
    assert child["as_before"]


def test_configurations_that_there_are_not_are_named(child):
    other, none = child["refused"]
    assert "no configuration" in other and "twice_and.BLOCK=128" in other
    assert "launches no autotuned kernel 'other'" in none


@pytest.mark.parametrize(("config", "warps"), [(FIRST, 1), (HOOKED, 2), (LARGE, 8)])
def test_the_pinned_configuration_is_what_is_compiled(tmp_path, config, warps):
    """Without a GPU, for one: exactly one kernel, with its launch options."""
    path = tmp_path / "problem.py"
    path.write_text(TUNED)
    loaded = load_problem(torch, path)
    given = {name: torch.empty(128, 64, device="meta") for name in "xy"}
    runner = loaded.build("tuned", named(config))
    (figures,) = compile_for(lambda: runner.run({}, given), (9, 0), listing=False)
    assert (figures.kernel, figures.warps) == ("twice_and", warps)


@pytest.mark.gpu
def test_on_a_gpu_nothing_is_measured_by_the_autotuner(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(TUNED)
    loaded = load_problem(torch, path, "cuda:0")
    given = loaded.problem.inputs(loaded.description.workloads[0], 3)
    for one in loaded.description.candidates[0].space:
        found = loaded.build("tuned", one).run({}, given)
        assert torch.allclose(found, given["x"] * 2 + given["y"])
    assert not hasattr(loaded.module.twice_and, "bench_time")
