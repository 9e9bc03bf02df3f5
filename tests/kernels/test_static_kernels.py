"""What the own kernels compile to, against a table: registers, stack, matrix unit.

`python benchmarks/static_table.py --write` renews the table where a kernel was changed on purpose.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import kernel_compass

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "tests" / "golden" / "static_kernels.json").read_text())
ROWS = TABLE["rows"]
REGISTERS = 8
"""How far off registers may be: ptxas allots them in eights."""
MOST_SHARED = {(8, 0): 166_912, (9, 0): 232_448, (10, 0): 232_448}
"""Bytes a block may have."""


def installed():
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def key(row):
    return row["case"], row["kernel"], tuple(row["capability"])


@pytest.fixture(scope="module")
def now():
    """The same figures from the kernels as they are; compiled in a program of its own, for tests
    that use Triton's interpreter may share this process."""
    if installed() != TABLE["triton"]:
        pytest.skip(f"the table is of triton {TABLE['triton']}, {installed()} is installed")
    pytest.importorskip("torch", reason="launchers take tensors of torch")
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(kernel_compass.__file__).parents[1])
    program = [sys.executable, str(ROOT / "benchmarks" / "static_table.py")]
    halves = [
        subprocess.Popen([*program, "--part", part], env=environment, stdout=subprocess.PIPE)
        for part in ("0/2", "1/2")
    ]
    texts = [half.communicate()[0] for half in halves]
    assert [half.returncode for half in halves] == [0, 0]
    return {key(row): row for text in texts for row in json.loads(text)["rows"]}


def test_the_table_has_the_cases_of_today(now):
    assert sorted(now) == sorted(map(key, ROWS))


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: "{} {}".format(row["case"], row["capability"])
)
def test_it_compiles_to_what_it_did(now, row):
    found = now[key(row)]
    assert abs(found["registers"] - row["registers"]) <= REGISTERS
    assert found["frame_bytes"] <= row["frame_bytes"], "it spills more registers"
    same = ("warps", "matrix_instruction", "shared_bytes")
    assert {name: found[name] for name in same} == {name: row[name] for name in same}


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: "{} {}".format(row["case"], row["capability"])
)
def test_the_table_is_of_kernels_that_can_be_launched(row):
    assert row["shared_bytes"] <= MOST_SHARED[tuple(row["capability"])]
    assert 32 * row["warps"] * row["registers"] <= 65_536
    assert row["matrix_instruction"] or row["kernel"] == "quantize_rows"
