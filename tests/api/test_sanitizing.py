"""compute-sanitizer as a stand-in program: how it is called, and what becomes of what it says."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("torch", reason="needs torch")

from kernel_compass.api import sanitizing
from kernel_compass.api.problems import problem_source, product_description
from kernel_compass.errors import MeasurementCause, MeasurementError, MissingDependency
from kernel_compass.records.trial import Candidate

SOURCE = problem_source("bmm:2x3x64x32")
WORKLOAD = product_description(SOURCE).workloads[0]
CANDIDATE = Candidate("cublas_bf16", format="bf16")
PROGRAM = """#!{python}
import json, os, sys
names = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_VISIBLE_DEVICES", "SOME_API_TOKEN")
with open({log!r}, "a") as file:
    print(json.dumps([sys.argv[1:], {{n: os.environ.get(n) for n in names}}]), file=file)
tool = sys.argv[sys.argv.index("--tool") + 1]
{said}
"""
FINE = """
print("kernel-compass: the candidate was called")
said = {"memcheck": "ERROR SUMMARY: 0 errors", "racecheck": "RACECHECK SUMMARY: 0 hazards"}
print("=========", said[tool])
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    def made(said):
        path = tmp_path / "bin" / "compute-sanitizer"
        path.parent.mkdir(exist_ok=True)
        log = tmp_path / "log"
        path.write_text(PROGRAM.format(python=sys.executable, log=str(log), said=said))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(path.parent))
        return log

    return made


def run(**more):
    return sanitizing.sanitize(SOURCE, WORKLOAD, CANDIDATE, "GPU-1", **more)


def test_both_tools_run_without_the_caching_allocator_and_with_guards(program, monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", "x")
    log = program(FINE)
    reports = run()
    assert [(one.tool, one.is_clean) for one in reports] == [
        ("memcheck", True),
        ("racecheck", True),
    ]
    (memcheck, environment), (racecheck, _) = map(json.loads, log.read_text().splitlines())
    assert environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert environment["SOME_API_TOKEN"] is None, "a candidate sees no secrets"
    assert int(memcheck[memcheck.index("--padding") + 1]) >= 4096
    assert "--padding" not in racecheck


def test_findings_are_reported(program):
    program(
        'print("========= Invalid __global__ read of size 2 bytes")\n'
        'print("=========     at k():0x1")\nprint("========= ERROR SUMMARY: 1 error")'
    )
    assert [one.is_clean for one in run()] == [False, False]
    assert "at k()" in run()[0].findings[0]


@pytest.mark.parametrize("said", ["", "print('========= ERROR SUMMARY: 0 errors')"])
def test_a_candidate_that_was_never_called_is_not_clean(program, said):
    program(said)
    with pytest.raises(MeasurementError, match="did not get to call"):
        run()


def test_one_that_hangs_is_ended(program):
    program("import time; time.sleep(600)")
    with pytest.raises(MeasurementError) as caught:
        run(timeout_s=1.0)
    assert caught.value.cause is MeasurementCause.TIMEOUT


def test_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    with pytest.raises(MissingDependency, match="compute-sanitizer"):
        run()
