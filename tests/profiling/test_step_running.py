"""A program that has ended is still there: its step is called again, and changes reach it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_compass

PROGRAM = """
import pickle, sys

class Kept:
    pass

def part():
    return "own"

def step():
    return part()

print(__name__, __file__.rsplit("/", 1)[1], __package__, sys.argv[1:], "once")
"""
AFTERWARDS = """
import json, pickle, sys
from kernel_compass.profiling.step_running import prepare, run_once
from kernel_compass.records.step_program import Program, ProgramKind
program = Program(ProgramKind(sys.argv[1]), sys.argv[2], ("a", "b"))
prepare(program)
run_once(program)
main = sys.modules["__main__"]
before = main.step()
main.part = lambda: "put on"
print(json.dumps([before, main.step(), type(pickle.loads(pickle.dumps(main.Kept()))).__name__]))
"""


@pytest.mark.parametrize(
    ("kind", "file", "target", "said"),
    [
        ("script", "prog.py", "prog.py", "__main__ prog.py None ['a', 'b'] once"),
        ("module", "prog.py", "prog", "__main__ prog.py  ['a', 'b'] once"),
        ("module", "pkg/__main__.py", "pkg", "__main__ __main__.py pkg ['a', 'b'] once"),
        ("module", "pkg/inner.py", "pkg.inner", "__main__ inner.py pkg ['a', 'b'] once"),
    ],
)
def test_what_a_program_defines_is_found_and_changed_after_its_end(
    tmp_path, kind, file, target, said
):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(PROGRAM)
    if path.parent != tmp_path:
        (path.parent / "__init__.py").touch()
    source = str(Path(kernel_compass.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", AFTERWARDS, kind, target],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
    )
    first, last = found.stdout.splitlines()
    assert first == said
    assert json.loads(last) == ["own", "put on", "Kept"]


def test_a_module_that_is_not_there_ends_as_python_ends_it(tmp_path):
    source = str(Path(kernel_compass.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", AFTERWARDS, "module", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert found.returncode == 1
    assert "No module named nowhere" in found.stderr
