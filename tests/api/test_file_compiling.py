"""Triton candidates of a problem's own file are compiled without a GPU, and none is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")

from api.compiled_problem import COMPILED, FITTING, PREFIX, TOO_LARGE, WIDE, config_of

from kernel_compass.api import loop_compiling
from kernel_compass.api.problems import problem_source
from kernel_compass.api.proving import environment_key
from kernel_compass.codec.canonical import plain
from kernel_compass.optimizer.ledger import read_study
from kernel_compass.optimizer.search.prune import LIMITS, Compiled, Dropped, prune
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Outcome, Reason

ROOT = Path(__file__).parents[2]
HOPPER = LIMITS[9, 0]
WORKLOAD = ProblemWorkload("w", {"m": 16, "n": 64, "k": 128})


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    path = tmp_path_factory.mktemp("compiled") / "problem.py"
    path.write_text(COMPILED)
    return path


@pytest.fixture(scope="module")
def asked(problem):
    """Rows of candidates with configurations, as a worker is asked for them."""

    def arguments(*rows, **beside):
        spaces = [
            {
                "workload": plain(WORKLOAD),
                "implementation": name,
                "format": None,
                "configs": [config_of(values) for values in configs],
            }
            for name, configs in rows
        ]
        common = {"device": "simulated", "source": plain(problem_source(str(problem)))}
        return {"spaces": spaces, "budget_s": 240.0, "timeout_s": 90.0, **common, **beside}

    return arguments


@pytest.fixture(scope="module")
def found(asked, tmp_path_factory):
    """What became of each candidate; the kernels of this process are interpreted or not."""
    rows = [
        ("tuned", [TOO_LARGE, FITTING]),
        *[(n, [FITTING]) for n in ("on_a_gpu_alone", "by_value", "unaligned", "unknown")],
        ("of_two", [WIDE]),
        ("of_torch", [{}]),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITON_INTERPRET", "1")
        first = loop_compiling.compile_task(asked(*rows), lambda _: None)
        again = loop_compiling.compile_task(asked(*rows, budget_s=0.0), lambda _: None)
    answers = dict(zip((name for name, _ in rows), first["compiled"], strict=True))
    later = dict(zip((name for name, _ in rows), again["compiled"], strict=True))
    return answers, later


def reference(problem, values):
    """By Triton's compiler from types that are written down, and cuobjdump's own count."""
    ours = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    child = Path(__file__).with_name("compiled_child.py")
    done = subprocess.run(
        [sys.executable, str(child), str(problem), json.dumps(values)],
        env={**ours, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("index", [0, 1])
def test_figures_are_those_of_the_compiler_for_the_types_of_a_launch(found, problem, index):
    values = (TOO_LARGE, FITTING)[index]
    figures = found[0]["tuned"][index]["figures"]
    expected = reference(problem, values)
    assert figures["registers"] == expected["registers"]
    assert figures["shared_bytes"] == expected["shared_bytes"]
    assert figures["threads"] == 32 * values["num_warps"]
    assert (figures["hmma"] > 0) == expected["has_mma"]
    assert figures["loads_128"] > 0


@pytest.mark.parametrize("name", ["on_a_gpu_alone", "by_value"])
def test_what_asks_for_a_gpu_or_for_values_is_launched_with_the_same_types(found, name):
    assert found[0][name][0] == found[0]["tuned"][1]


def test_an_operand_that_is_not_aligned_is_compiled_as_such(found):
    figures = found[0]["unaligned"][0]["figures"]
    assert figures["loads_128"] < found[0]["tuned"][1]["figures"]["loads_128"]


def test_of_two_kernels_no_launch_needs_the_registers_of_one_and_the_threads_of_the_other(
    found, problem
):
    """The second's 1,024 threads with the first's registers would be more than there are."""
    figures = found[0]["of_two"][0]["figures"]
    first = reference(problem, WIDE)
    assert 1024 * first["registers"] > HOPPER.registers
    assert (figures["registers"], figures["threads"]) == (first["registers"], 128)
    (verdict,) = prune([Compiled(figures)], [""], HOPPER)
    assert verdict.dropped is None, verdict.detail


def test_what_cannot_be_learned_says_why_and_what_is_no_kernel_is_left_out(found):
    (unknown,) = found[0]["unknown"]
    assert "no_module_is_called_so" in unknown["failure"]
    assert not Compiled(**unknown).is_known
    assert found[0]["of_torch"] is None


def test_what_is_remembered_takes_no_time_and_what_failed_on_the_way_is_tried_again(found):
    first, later = found
    names = ("tuned", "on_a_gpu_alone", "by_value", "of_two", "unaligned")
    assert {n: later[n] for n in names} == {n: first[n] for n in names}
    assert later["unknown"][0]["lost"]


def test_another_file_than_was_agreed_to_is_not_run(asked, problem):
    changed = plain(problem_source(str(problem))) | {"sha256": "0" * 64}
    arguments = asked(("tuned", [FITTING]), source=changed)
    ((answer,),) = loop_compiling.compile_task(arguments, lambda _: None)["compiled"]
    assert "another file than was agreed to" in answer["failure"]
    assert answer["figures"] is None


def test_what_no_gpu_can_launch_is_ruled_out(found):
    rows = [Compiled(**one) for one in found[0]["tuned"]]
    large, fitting = prune(rows, ["", ""], HOPPER)
    assert large.dropped is Dropped.SHARED_MEMORY
    assert large.dropped.is_firm
    assert fitting.dropped is None


@pytest.mark.slow
def test_optimize_never_tries_what_does_not_fit_and_goes_on_with_what_it_cannot_compile(
    problem, tmp_path, monkeypatch
):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "KERNEL_COMPASS_HOME": str(tmp_path / "home"),
        "KERNEL_COMPASS_CACHE": str(tmp_path / "cache"),
        "XDG_CACHE_HOME": str(tmp_path / "xdg"),
        "OMP_NUM_THREADS": "1",
        "TRITON_INTERPRET": "1",  # candidates are judged on the CPU
    }
    proved = tmp_path / "cache" / "self-test"
    proved.mkdir(parents=True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (proved / f"{environment_key('cpu')[0]}.json").write_text('{"passed": true}')
    words = ["--device", "simulated", "--regime", "warm", "--static", "2", "--trials", "9", "--yes"]
    done = subprocess.run(
        [sys.executable, "-m", "kernel_compass", "optimize", str(problem), *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "home" / "studies").iterdir()
    trials = read_study(folder).trials
    large = [t for t in trials if t.proposal.candidate.config.get(PREFIX + "BK") == 512]
    ours = [t for t in large if t.proposal.candidate.implementation == "tuned"]
    assert [(t.outcome, t.reason, t.results) for t in ours] == [
        (Outcome.REJECTED, Reason.DOES_NOT_FIT, ())
    ]
    assert "shared memory" in ours[0].detail
    assert {t.proposal.proposer for t in ours} == {"static"}
    tried = {t.proposal.candidate.implementation for t in trials if t.results}
    assert {"tuned", "by_value"} <= tried
    assert "unknown: 3 of 3 are not compiled beforehand" in done.stderr
