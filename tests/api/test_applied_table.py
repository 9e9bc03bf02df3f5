"""What a table holds, put on in a program: by `applied`, by `run`, and as an edit of a copy."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from api import applied_program
from api.applied_stand_ins import HERE, action
from optimizer.study_samples import ENVIRONMENT, H200, entry, step_entry

import kernel_compass
from kernel_compass.api.source_patch import patch_script
from kernel_compass.errors import StudyError, UsageError
from kernel_compass.optimizer.dispatch_file import merge
from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

ROOT = Path(__file__).parents[2]
EAGER = {"backend": "eager"}
CUBLAS = Candidate("cublas_bf16", {"layout": "nk"}, "bf16")
SCRIPT = '''"""A user's script."""

import os
import sys

import torch
import torch.nn.functional as F

from helper import halved

torch.manual_seed(0)
SIZE = 16


def norm(x):
    return torch.tanh(x) * torch.sigmoid(x)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(SIZE, SIZE).bfloat16(), requires_grad=False)

    def forward(self, x):
        return norm(F.linear(x, self.w))


def main():
    block, x = Block(), torch.randn(4, SIZE).bfloat16()
    for _ in range(3):
        out = halved(block(x))
    print(sys.argv[1:], float(out.float().sum()), sys.stdin.readline().strip())
    print(os.path.basename(__file__), __name__, torch.get_float32_matmul_precision())
    if "fail" in sys.argv:
        raise ValueError("the program's own")
    sys.exit(3 if "code" in sys.argv else 0)


if __name__ == "__main__":
    main()
'''
HELPER = '''"""Imported by the script."""


def halved(x):
    return x.float() / 2 + x.float().tanh()
'''


def steps(*actions, gpu=None, files=None, packages=None):
    return [
        replace(
            step_entry(),
            action=one,
            gpu=gpu or HERE(),
            files=files or {},
            packages=packages or {},
            trial=n,
        )
        for n, one in enumerate(actions, 1)
    ]


def table_of(path, *actions, entries=(), **more):
    environments = {"study-s": ENVIRONMENT, "study-a": ENVIRONMENT}
    merge(path, list(entries), environments, steps(*actions, **more))
    return path


def region(function, **settings):
    return action("compile_region", f"function {function}", settings=settings or EAGER,
                  function=function)  # fmt: skip


def linear(tokens=4, size=16):
    work = Workload(Op.LINEAR, 1, tokens, size, size)
    return StepAction(StepActionKind.PRODUCT, StepTarget("w", workload=work), CUBLAS)


@pytest.fixture
def program(tmp_path):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "step.py").write_text(SCRIPT)
    (folder / "helper.py").write_text(HELPER)
    return folder / "step.py"


def python(*words, stdin="hello\n"):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        input=stdin,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def run(table, *words):
    return python("-m", "kernel_compass", "run", "--with", table, "--explain", *words)


class TestApplied:
    """In the program itself."""

    def test_products_of_the_table_and_of_steps(self, tmp_path):
        weight = torch.nn.Parameter(torch.randn(16, 16).bfloat16(), requires_grad=False)
        x = torch.randn(4, 16).bfloat16()
        own = entry(tokens=(8,), sizes=(1, 16, 16), op=Op.LINEAR, candidate=CUBLAS, gpu=HERE())
        path = table_of(tmp_path / "compass.json", linear(), entries=[own])
        with kernel_compass.applied(path) as on:
            torch.nn.functional.linear(x, weight)
            torch.nn.functional.linear(torch.cat([x, x]), weight)
            torch.nn.functional.linear(x[:3], weight)
            assert on.products == 2 and "2 entries" in "\n".join(on.explain())
        with kernel_compass.applied(path, kinds=["step_graph"]) as on:
            torch.nn.functional.linear(x, weight)
            assert on.products == 0 and on.applications == []
        with pytest.raises(UsageError, match="no kind of action"):
            kernel_compass.applied(path, kinds=["speed"])
        with pytest.raises(StudyError, match="no dispatch table"):
            kernel_compass.applied(tmp_path / "other.json")

    def test_another_machine_leaves_every_bit(self, tmp_path):
        model = applied_program.Model().requires_grad_(False).bfloat16()
        x = torch.randn(4, 8).bfloat16()
        q = torch.randn(1, 2, 8, 8)
        attend = torch.nn.functional.scaled_dot_product_attention
        compiled = torch.compile(model, backend="aot_eager")
        untouched, attended, whole = model(x), attend(q, q, q), compiled(x)
        other = entry(tokens=(4,), sizes=(1, 8, 8), op=Op.LINEAR, candidate=CUBLAS)
        path = table_of(
            tmp_path / "compass.json",
            linear(size=8),
            region("api/applied_program.py:plain"),
            action("sdpa_backend", settings={"backend": "math"}),
            action("matmul_precision", settings={"precision": "medium"}),
            gpu=H200,
            entries=[other],
        )
        with kernel_compass.applied(path, model) as on:
            for _ in range(3):
                assert torch.equal(model(x), untouched) and torch.equal(attend(q, q, q), attended)
                assert torch.equal(compiled(x), whole)
            assert torch.get_float32_matmul_precision() == "highest" and on.added_bytes == 0
            text = "\n".join(on.explain())
            assert text.count("measured on NVIDIA H200 (9.0, 132 SMs), and this is") >= 3

    def test_another_file_is_not_put_on(self, tmp_path):
        name = "api/applied_program.py"
        digest = hashlib.sha256((ROOT / "tests" / name).read_bytes()).hexdigest()
        for sha, said in ((digest, None), ("00" * 32, "is not the file that was measured")):
            path = tmp_path / f"{sha}.json"
            table_of(path, region(f"{name}:plain"), files={name: sha})
            with kernel_compass.applied(path) as on:
                applied_program.plain(torch.ones(2), torch.ones(2))
                (row,) = on.applications
                assert (row.uses == 1) == (said is None) and (said or "") in (row.objection or "")
        path = table_of(tmp_path / "gone.json", region(f"{name}:plain"), files={"gone.py": digest})
        with kernel_compass.applied(path) as on:
            assert "not among" in on.applications[0].objection


class TestRun:
    """`kernel-compass run`."""

    def test_a_script_with_its_own_functions_and_those_it_imports(self, program, tmp_path):
        files = {"step.py": hashlib.sha256(program.read_bytes()).hexdigest()}
        path = table_of(
            tmp_path / "compass.json",
            linear(),
            region("step.py:norm"),
            region("helper.py:halved"),
            action("matmul_precision", settings={"precision": "high"}),
            files=files,
        )
        before = python(program, "a", "--b")
        found = run(path, program, "--", "a", "--b")
        assert found.returncode == before.returncode == 0, found.stderr
        assert found.stdout == before.stdout.replace("highest", "high")
        said = found.stderr
        assert "compile_region function step.py:norm backend=eager: on" in said
        assert "compile_region function helper.py:halved backend=eager: on" in said
        assert "product w cublas_bf16 bf16: on" in said
        assert "Handle linear Mx16x16: 1 entries" in said and "torch computes" not in said
        assert not list(program.parent.rglob("*.pyc")) or "mark" not in str(said)
        assert program.read_text() == SCRIPT

    @pytest.mark.parametrize("word", ["code", "fail"])
    def test_exit_codes_and_tracebacks_are_the_programs(self, word, program, tmp_path):
        path = table_of(tmp_path / "compass.json", region("step.py:norm"))
        before, found = python(program, word), run(path, program, word)
        assert found.returncode == before.returncode and found.stdout == before.stdout
        if word == "fail":
            assert before.stderr.strip() in found.stderr and "kernel_compass" not in before.stderr

    def test_a_module_and_the_modules_of_the_step(self, program, tmp_path):
        path = table_of(
            tmp_path / "compass.json",
            action("compile_region", "the step's module", settings=EAGER, module=""),
            action("compile_region", "class", settings=EAGER, module_class="step.py:Block"),
            action("step_graph", "step"),
        )
        found = subprocess.run(
            [sys.executable, "-m", "kernel_compass", "run", "--with", str(path), "--explain",
             "-m", "step", "x"],
            cwd=program.parent,
            input="hi\n",
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        assert "['x']" in found.stdout and found.stdout.count(" hi\n") == 1
        assert "the step's module backend=eager: on" in found.stderr
        assert "class backend=eager: on" in found.stderr, found.stderr
        assert torch.cuda.is_available() or "CUDA graphs need a GPU" in found.stderr

    def test_a_program_without_torch_and_what_is_not_there(self, tmp_path):
        (tmp_path / "plain.py").write_text("import sys\nprint(sys.argv, 'torch' in sys.modules)\n")
        path = table_of(tmp_path / "compass.json", region("step.py:norm"))
        found = run(path, tmp_path / "plain.py", "-x")
        assert found.stdout == f"['{tmp_path / 'plain.py'}', '-x'] False\n"
        assert "never imported torch" in found.stderr
        assert run(path, tmp_path / "nothing.py").returncode == 2
        assert run(tmp_path / "nothing.json", tmp_path / "plain.py").returncode == 11
        assert run(path, "--kind", "speed", tmp_path / "plain.py").returncode == 2
        assert run(path).returncode == 2


class TestNothingOn:
    """`kernel-compass run` without `--explain`: a line where nothing of the table was on."""

    def run(self, table, *words):
        found = python("-m", "kernel_compass", "run", "--with", table, *words)
        said = [line for line in found.stderr.splitlines() if line.startswith("kernel-compass:")]
        return found, said

    def test_what_was_measured_elsewhere_is_named_with_the_reason(self, program, tmp_path):
        precision = action("matmul_precision", settings={"precision": "high"})
        changes = [region("step.py:norm"), precision]
        path = table_of(tmp_path / "compass.json", *changes, gpu=H200)
        before = python(program, "code")
        found, (said,) = self.run(path, program, "code")
        assert (found.stdout, found.returncode) == (
            before.stdout,
            before.returncode,
        ) and before.stdout
        assert re.match(r"kernel-compass: nothing of compass.json was on: \w+ [^;]*: it was", said)
        assert "it was measured on NVIDIA H200 (9.0, 132 SMs), and this is" in said
        assert "; and 1 more (--explain says all)" in said

    def test_so_are_other_files_products_and_kinds(self, program, tmp_path):
        path = table_of(tmp_path / "a.json", region("step.py:norm"), files={"step.py": "00" * 32})
        _, (said,) = self.run(path, program)
        assert "is not the file that was measured (--explain says all)" in said
        own = entry(tokens=(4,), sizes=(1, 16, 16), op=Op.LINEAR, candidate=CUBLAS)
        path = table_of(tmp_path / "b.json", entries=[own])
        _, (said,) = self.run(path, program)
        assert "nothing of b.json was on: " in said and "H200" in said
        path = table_of(tmp_path / "c.json", region("step.py:norm"))
        _, (said,) = self.run(path, "--kind", "layout", program)
        assert "nothing of c.json was on: it holds no change of the kinds that were named" in said
        path = table_of(tmp_path / "d.json", region("gone.py:gone"))
        _, (said,) = self.run(path, program)
        assert "gone.py:gone backend=eager: the program never defined what it changes" in said
        (tmp_path / "plain.py").write_text("print('plain')")
        _, (said,) = self.run(path, tmp_path / "plain.py")
        assert "never imported torch" in said

    def test_nothing_is_said_where_one_is_on_or_all_is_explained(self, program, tmp_path):
        path = table_of(tmp_path / "compass.json", region("step.py:norm"), region("gone.py:gone"))
        found, said = self.run(path, program)
        assert found.returncode == 0 and not said
        path = table_of(tmp_path / "product.json", linear())
        found, said = self.run(path, program)
        assert found.returncode == 0 and not said
        path = table_of(tmp_path / "other.json", region("step.py:norm"), gpu=H200)
        _, said = self.run(path, "--explain", program)
        assert len(said) == 1 and "nothing of" not in said[0]


class TestPatch:
    """`kernel-compass patch`."""

    def test_what_has_a_plain_spelling_is_code(self, program, tmp_path):
        path = table_of(
            tmp_path / "compass.json",
            region("step.py:norm"),
            region("step.py:Block.forward", mode="default", dynamic=False),
            action("matmul_precision", settings={"precision": "high"}),
        )
        copy = program.with_name("fast.py")
        found = python(
            "-m", "kernel_compass", "patch", "--with", path, program, "-o", copy, "--diff"
        )
        assert found.returncode == 0, found.stderr
        assert program.read_text() == SCRIPT and found.stderr.count("as code:") == 3
        text = copy.read_text()
        assert "@torch.compile(backend='eager')\ndef norm(x):" in text
        assert "    @torch.compile(dynamic=False)\n    def forward(self, x):" in text
        assert 'torch.set_float32_matmul_precision("high")\n' in text
        assert "kernel_compass" not in text
        applied = subprocess.run(["patch", "-R", "-o", "-", copy], input=found.stdout, text=True,
                                 capture_output=True, check=False)  # fmt: skip
        assert applied.returncode != 0 or applied.stdout == SCRIPT
        again = python("-m", "kernel_compass", "patch", "--with", path, program, "-o", copy)
        assert again.returncode == 2 and "nothing is overwritten" in again.stderr
        same = python("-m", "kernel_compass", "patch", "--with", path, program, "-o", program)
        assert same.returncode == 2 and "the script itself" in same.stderr

    def test_what_has_none_is_put_on_at_the_start(self, program, tmp_path):
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        path = table_of(
            tmp_path / "compass.json",
            linear(),
            region("helper.py:halved"),
            action("step_graph", "class", module_class="step.py:Block"),
            files={"step.py": digest},
        )
        copy = program.with_name("fast.py")
        found = patch_script(path, program, copy)
        copy.write_text(found.text)
        assert "import kernel_compass\n" in found.text and len(found.applied) == 3
        assert "renamed={'step.py': 'fast.py'}" in found.text
        before, after = python(program), python(copy)
        assert after.returncode == 0, after.stderr
        assert after.stdout == before.stdout.replace("step.py", "fast.py")
        assert len(found.diff.splitlines()) < 20

    def test_launches_of_a_kernel(self, tmp_path):
        script = tmp_path / "k.py"
        script.write_text(
            "import triton\n\n\n@triton.jit\ndef mine(x, n, BLOCK):\n    pass\n\n\n"
            "def go(x, n):\n    mine[lambda m: (n // m['BLOCK'],)](x, n, BLOCK=64, num_warps=4)\n"
            "    mine[lambda m: (n,)](x, n, BLOCK=64)\n"
        )
        one = action("triton_config", "kernel mine", {"BLOCK": 128, "num_warps": 8}, kernel="mine")
        path = table_of(tmp_path / "compass.json", one)
        found = patch_script(path, script, tmp_path / "k2.py")
        assert "(x, n, BLOCK=128, num_warps=8)\n" in found.text
        assert "mine[lambda m: (n,)](x, n, BLOCK=128, num_warps=8)\n" in found.text
        fixed = script.read_text().replace("lambda m: (n,)", "(n,)")
        script.write_text(fixed)
        found = patch_script(path, script, tmp_path / "k2.py")
        assert "BLOCK=64" in found.text and 'kinds=["triton_config"]' in found.text

    def test_odd_files_stay_what_they_are(self, tmp_path):
        script, copy = tmp_path / "s.py", tmp_path / "t.py"
        one = action("matmul_precision", settings={"precision": "high"})
        path = table_of(tmp_path / "compass.json", one)
        script.write_bytes(b"import torch\r\nprint('\xc3\xa4')\r\n")
        found = patch_script(path, script, copy)
        assert found.text == (
            "import torch\r\ntorch.set_float32_matmul_precision(\"high\")\r\nprint('ä')\r\n"
        )
        script.write_bytes(b"import torch")
        assert patch_script(path, script, copy).text.count("\n") == 2
        for wrong in (b"def", b"\xff\xfe", b"# coding: nonsense\n"):
            script.write_bytes(wrong)
            with pytest.raises(UsageError):
                patch_script(path, script, copy)
        path = table_of(tmp_path / "other.json", one, files={"s.py": "00" * 32})
        script.write_bytes(b"import torch\n")
        with pytest.raises(StudyError, match="not the file that was measured"):
            patch_script(path, script, copy)
