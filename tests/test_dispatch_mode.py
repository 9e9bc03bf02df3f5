"""torch's compiler is not imported for looking at operators, and is kept out where it is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_compass

pytest.importorskip("torch")

PROGRAM = """
import sys, torch
from torch.utils._python_dispatch import TorchDispatchMode
from kernel_compass.dispatch_mode import without_compiler

seen = []

@without_compiler
class Look(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append((func.name(), torch.compiler.is_compiling()))
        return func(*args, **(kwargs or {}))

def f(x):
    return torch.relu(x) + 1

x = torch.randn(8)
with Look():
    plain = f(x)
print("torch._dynamo" in sys.modules)
from torch._dynamo.utils import counters
compiled = torch.compile(f, backend="eager")
compiled(x)
before = counters["frames"]["total"]
with Look():
    again = compiled(x)
assert torch.equal(plain, again)
print(counters["frames"]["total"] - before, any(flag for _, flag in seen))
print(*(name for name, _ in seen))
"""


def test_the_first_operator_imports_no_compiler_and_a_compiled_one_is_looked_at_uncompiled():
    source = str(Path(kernel_compass.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    imported, traced, names = done.stdout.splitlines()
    assert imported == "False"
    assert traced == "0 False"
    assert names == "aten::relu aten::add.Tensor aten::relu aten::add.Tensor"
