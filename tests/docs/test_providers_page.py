"""The examples of docs/providers.md run as they stand, in Triton's interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kernel_compass.kernels.providers.registry import all_implementations
from kernel_compass.records.number_format import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/providers.md").read_text(encoding="utf-8")
KERNELS = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a user would, from the root of a checkout."""
    inherited = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={
            **inherited,
            "PYTHONPATH": str(ROOT / "src"),
            "CUDA_VISIBLE_DEVICES": "",
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(autouse=True)
def _libraries() -> None:
    pytest.importorskip("torch", reason="the examples compute on tensors: torch is not installed")
    pytest.importorskip("triton", reason="the examples run own kernels: triton is not installed")


def test_the_example_of_an_implementation_is_right() -> None:
    done = run(PROGRAMS[0], TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-2000:]
    first, last = done.stdout.splitlines()
    assert "'own_decode'" in first and last.startswith("True ")


def test_the_example_of_the_fused_products_has_the_shapes_it_says() -> None:
    done = run(PROGRAMS[1], TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-2000:]
    stated = re.findall(r"print\(.*\)  # (\([^:\n]*\))", PROGRAMS[1])
    assert done.stdout.splitlines() == stated and len(stated) == 2


@pytest.mark.parametrize("program", PROGRAMS, ids=["implementation", "fused"])
def test_without_the_interpreter_it_is_what_the_page_says(program: str) -> None:
    done = run(program)
    assert "UsageError" in done.stderr and "TRITON_INTERPRET=1" in done.stderr


def test_names_of_formats_and_implementations_are_explained() -> None:
    (explained,) = re.findall(r"\*\*Names of formats\.\*\*(.*?)\n\n", PAGE, re.DOTALL)
    for name in EXAMPLES:
        plain = name.removesuffix("_asym").replace("w4a16_g", "g")
        assert f"`{plain}`" in explained or f"`{name.removesuffix('_asym')}`" in explained, name
    for one in all_implementations():
        assert one.provider == "own" or f"`{one.name}`" in PAGE, one.name


def test_all_extras_are_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in project["optional-dependencies"]:
        assert f'".[{name}]"' in readme, name


def test_default_formats_are_those_of_the_commands() -> None:
    from kernel_compass.cli import mla, sweep

    for command in (mla, sweep):
        names = list(command.PRECISIONS)
        assert f"{', '.join(names[:-1])} and {names[-1]}" in " ".join(KERNELS.split())
