"""Imports stay light, and need nothing that is optional."""

from __future__ import annotations

import os
import pkgutil
import resource
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernel_compass

OPTIONAL = ("torch", "triton", "ncu_report")
BLOCK = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None
"""


def child(code, *options):
    """In an interpreter that imports the package under test, whatever else is installed."""
    source = str(Path(kernel_compass.__file__).parents[1])
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": source},
    )


def all_modules():
    """All but the kernel files, which hold device code and import triton."""
    found = pkgutil.walk_packages(kernel_compass.__path__, "kernel_compass.")
    return sorted({module.name for module in found} - kernel_files())


def kernel_files():
    """Those that the import contract allows to import torch or triton."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    (contract,) = (
        found
        for found in project["tool"]["importlinter"]["contracts"]
        if found["type"] == "forbidden" and "triton" in found["forbidden_modules"]
    )
    return {allowed.split(" -> ")[0] for allowed in contract["ignore_imports"]}


def test_every_module_imports_without_the_optional_packages():
    lines = "\n".join(f"import {name}" for name in all_modules())
    result = child(BLOCK + lines, "-W", "error")
    assert result.returncode == 0, result.stderr


def test_the_package_imports_without_torch_and_for_less_than_the_option_reader():
    own, library = [], []
    for _ in range(3):
        result = child("import kernel_compass; import typer", "-X", "importtime")
        assert "torch" not in result.stderr
        costs = dict(
            reversed(line.split("|")[1:]) for line in result.stderr.split("\n") if "|" in line
        )
        own.append(int(costs[" kernel_compass"]))
        library.append(int(costs[" typer"]))
    assert min(own) < max(library)


@pytest.mark.parametrize("heavy", ["rich", "msgspec", "numpy", "kernel_compass.profiling"])
def test_help_loads_nothing_heavy(heavy):
    code = (
        "import sys; from kernel_compass.cli.main import main; main(['--help']); "
        f"sys.exit({heavy!r} in sys.modules)"
    )
    assert child(code).returncode == 0


def test_help_costs_little_more_than_the_library_that_reads_options():
    """CPU time beside that of importing what its import needs, run by turns: what a slow or busy
    machine does to the one, it does to the other."""
    pairs = [(cpu_seconds(HELP), cpu_seconds("import typer, inspect, rich")) for _ in range(5)]
    assert statistics.median(own / library for own, library in pairs) < 3


HELP = "from kernel_compass.cli.main import run; import sys; sys.argv[1:] = ['--help']; run()"


def cpu_seconds(code):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert child(code).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
