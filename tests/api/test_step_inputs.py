"""Outputs compared on several inputs: the user's, calls of the program's own, draws of a model."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kernel_compass.api.step_bench import ProgramBench
from kernel_compass.api.step_capturing import capture_program
from kernel_compass.api.step_program import program_files, program_of
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.errors import ProfilingError, UsageError
from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
from kernel_compass.records.step_loop import StepOptions
from kernel_compass.records.trial import Reason

SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = Path(__file__).parent / "step_programs" / "inputs.py"
PRECISION = StepAction(
    StepActionKind.MATMUL_PRECISION, StepTarget("float32 products"), settings={"precision": "high"}
)
GROWING = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + {odd}
model = Model()
for length in range(1, 11):
    model(torch.full((length,), float(length)))
"""
MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width))
    def forward(self, x):
        return x @ self.weight
def get_init_inputs():
    return [4]
def get_inputs():
    return [torch.randn(2, 4)]
"""


def tried(entry: str, inputs: str):
    program = program_of(entry=f"{PROGRAM}:{entry}", inputs=f"{PROGRAM}:{inputs}")
    return ProgramBench(program, StepOptions(pairs=12), 1.0, "cpu").attempt((), PRECISION)


def opened(program, code: str) -> list[object]:
    """What a piece of code prints, one JSON a line, of a `step` in a process of its own."""
    words = [program.kind.value, program.target, program.inputs]
    text = (
        "import json\nfrom kernel_compass.api.step_program import Program, ProgramKind, open_step\n"
        f"kind, target, inputs = {words!r}\n"
        f"step = open_step(Program(ProgramKind(kind), target, (), inputs))\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(row) for row in done.stdout.splitlines()]


def test_a_change_has_to_be_right_for_each_input():
    found = tried("long_ones_differ", "mixed")
    assert found.reason is Reason.OVER_BUDGET
    assert found.detail.startswith("input 2: output is 50 % off")
    assert [round(one.relative_pct) for one in found.outputs] == [0, 50]
    assert found.inputs == 2


def test_what_is_right_for_all_is_kept_and_says_for_how_many():
    found = tried("long_ones_differ", "short")
    assert found.reason is None and found.result is not None
    assert [one.name for one in found.outputs] == ["output", "input 2: output", "input 3: output"]
    assert found.inputs == 3


def test_what_an_input_writes_is_put_back_before_the_next():
    found = tried("cached", "rows")
    assert found.reason is None, found.detail
    names = ["output", "written self.rows"]
    more = [f"input {at}: {name}" for at in (2, 3) for name in names]
    assert [one.name for one in found.outputs] == names + more
    program = program_of(entry=f"{PROGRAM}:cached", inputs=f"{PROGRAM}:rows")
    code = """
def all_of():
    found = [step.call().tolist()]
    step.reset()
    for other in step.others:
        with step.given(other):
            found.append(step.call().tolist())
        step.reset()
    return found
print(json.dumps(all_of()))
print(json.dumps(all_of()))
print(json.dumps(step.roots()["self"].rows.tolist()))
"""
    first, again, rows = opened(program, code)
    kept = [[3.0 * at, 3.0 * at + 1, 3.0 * at + 2] for at in range(4)]
    kept[0] = [10.0] * 3  # an entry's step is called once before anything is looked at
    assert rows == kept
    expected = []
    for at in (0, 2, 3):
        table = [*kept[:at], [10.0 * (at + 1)] * 3, *kept[at + 1 :]]
        expected.append([sum(column) for column in zip(*table, strict=True)])
    assert first == expected and again == expected


def test_what_is_yielded_is_copied_as_it_comes():
    program = program_of(entry=f"{PROGRAM}:long_ones_differ", inputs=f"{PROGRAM}:short")
    code = "print(json.dumps([step.args[0].tolist(), *(o.args[0].tolist() for o in step.others)]))"
    assert opened(program, code) == [[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("none", "gives no inputs"),
        ("bare", "gives a Tensor as input 1"),
        ("missing", "has no function 'missing'"),
        ("wrong", "cannot be called once more with input 2"),
    ],
)
def test_inputs_that_are_none_are_said(inputs, said):
    program = program_of(entry=f"{PROGRAM}:long_ones_differ", inputs=f"{PROGRAM}:{inputs}")
    with pytest.raises((UsageError, ProfilingError), match=said):
        capture_program(program)


def test_calls_of_the_programs_own_are_spread_over_its_run(tmp_path):
    file = tmp_path / "grow.py"
    file.write_text(GROWING.format(odd=0))
    code = (
        "print(json.dumps([one.name for one in step.others]))\n"
        "print(json.dumps([len(step.args[0]), *(len(one.args[0]) for one in step.others)]))\n"
        "print(json.dumps(step.notes))\n"
    )
    names, lengths, notes = opened(program_of(str(file), inputs="3"), code)
    assert names == ["call 1", "call 5"] and lengths == [10, 1, 5]
    assert "outputs are compared on 3 inputs: also on call 1, call 5" in notes
    (alone, _, _) = opened(program_of(str(file)), code)
    assert alone == []


def test_a_call_that_cannot_be_repeated_is_left_out_and_said(tmp_path):
    """What the program keeps in Python is as its last call left it."""
    file = tmp_path / "grow.py"
    file.write_text(GROWING.format(odd="(0 if len(x) > 3 or not done else 1 / 0)"))
    text = file.read_text().replace("model = ", "done = []\nmodel = ") + "done.append(1)\n"
    file.write_text(text)
    names, notes = opened(
        program_of(str(file), inputs="3"),
        "print(json.dumps([o.name for o in step.others]))\nprint(json.dumps(step.notes))",
    )
    assert names == ["call 5"]
    assert any("not compared on call 1, which fails now: ZeroDivisionError" in n for n in notes)


def test_a_problems_file_is_drawn_from_again(tmp_path):
    file = tmp_path / "problem.py"
    file.write_text(MODEL)
    code = "print(json.dumps([step.args[0].tolist(), *(o.args[0].tolist() for o in step.others)]))"
    (one,) = opened(program_of(entry=f"{file}:Model"), code)
    (three,) = opened(program_of(entry=f"{file}:Model", inputs="3"), code)
    assert three[0] == one[0] and len(three) == 3
    assert three[0] != three[1] != three[2]


def test_files_of_inputs_are_agreed_to_and_none_of_the_programs(tmp_path):
    step, inputs = tmp_path / "step.py", tmp_path / "given.py"
    step.write_text("def step():\n    return lambda x: x * 2\n")
    inputs.write_text("import torch\ndef few():\n    yield (torch.ones(2),)\n")
    program = program_of(entry=f"{step}:step", inputs=f"{inputs}:few")
    digests = [hashlib.sha256(one.read_bytes()).hexdigest() for one in (step, inputs)]
    assert program_files(program) == list(zip((step, inputs), digests, strict=True))
    assert list(capture_program(program).files) == ["step.py"]


@pytest.fixture
def say(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_the_command_says_on_how_many_and_a_study_keeps_them(say, tmp_path):
    (tmp_path / "step.py").write_text("def step():\n    return lambda x: x * 2\n")
    given = tmp_path / "given.py"
    given.write_text(
        "import torch\ndef few():\n    yield (torch.ones(2),)\n    yield (torch.ones(3),)"
    )
    words = ["--entry", "step.py:step", "--inputs", "given.py:few", "--device", "cpu", "--yes"]
    code, out, err = say("optimize", *words)
    assert code == ExitCode.OK, err
    assert "outputs are compared on 2 inputs: also on input 2" in out
    code, out, err = say("optimize", "--resume", "last", "--yes")
    assert code == ExitCode.OK, err
    assert "also on input 2" in out
    given.write_text(given.read_text() + "\n")
    code, _, err = say("optimize", "--resume", "last", "--yes")
    assert code != ExitCode.OK and "given.py was changed since the study was begun" in err


def test_a_step_that_takes_arguments_is_captured_with_the_first(say, tmp_path):
    (tmp_path / "step.py").write_text(
        "import torch\ndef step():\n    return lambda x: x * 2\n"
        "def few():\n    yield (torch.ones(5),)\n    yield (torch.ones(3),)\n"
    )
    code, _, err = say("capture", "--entry", "step.py:step", "--yes")
    assert code != ExitCode.OK and "--inputs FILE.py:FUNCTION" in err
    code, out, err = say(
        "capture", "--entry", "step.py:step", "--inputs", "step.py:few", "--yes", "--json"
    )
    assert code == ExitCode.OK, err
    found = json.loads(out)
    assert found["ops"][0]["inputs"][0]["shape"] == [5]
    assert "outputs are compared on 2 inputs: also on input 2" in found["notes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--script", "step.py", "--inputs", "step.py:f"], "arguments of an --entry's step"),
        (["--script", "step.py", "--inputs", "0"], "neither FILE:FUNCTION nor a number up to 64"),
        (["--script", "step.py", "--inputs", "65"], "neither FILE:FUNCTION nor a number up to 64"),
        (["--entry", "step.py:f", "--inputs", "no.py:f"], "There is no file no.py"),
        (["--entry", "step.py:f", "--inputs", "step.py:"], "names no function"),
        (["--entry", "step.py:f", "--inputs", "3", "--yes"], "is called without arguments"),
        (["--captured", "step.py", "--inputs", "3"], "where a new study runs a program"),
        (["linear:1x2x3", "--inputs", "3"], "--inputs: not of a problem"),
    ],
)
def test_inputs_that_cannot_be_meant_are_said(say, tmp_path, words, said):
    (tmp_path / "step.py").write_text("def f():\n    return lambda: None\n")
    code, _, err = say("optimize", *words)
    assert code == ExitCode.USAGE, err
    assert said in err
