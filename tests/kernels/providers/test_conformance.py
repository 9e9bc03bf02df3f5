"""Every implementation that can run on a CPU, through the whole conformance suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="providers compute on tensors: torch is not installed")

import conformance

import kernel_compass
from kernel_compass.kernels.providers.own import PROVIDER
from kernel_compass.kernels.providers.registry import all_implementations, implementation
from kernel_compass.records.contracts import Implementation

SOURCE = str(Path(kernel_compass.__file__).parents[1])
NAMES = [one.name for one in all_implementations()]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the interpreter that modules collected beside this one choose for their process."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__[6:])
@pytest.mark.parametrize("name", NAMES)
def test_conforms_on_a_cpu(name: str, check: Callable[[Implementation, str], None]) -> None:
    one = implementation(name)
    if why := conformance.reasons(one, "cpu"):
        pytest.skip(f"{name} cannot run on a CPU: {why[0]}")
    check(one, "cpu")


@pytest.mark.parametrize("name", [one.name for one in PROVIDER.implementations()])
def test_own_kernels_conform_in_the_interpreter(name: str) -> None:
    """In a process of its own, as the interpreter is chosen before a kernel is imported."""
    pytest.importorskip("triton", reason="the kernels are Triton's: triton is not installed")
    done = subprocess.run(
        [sys.executable, conformance.__file__, name, "cpu"],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["unusable"] == [] and found["computed"]
    assert found["failures"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Usage: "),
        (("own_decod", "cpu"), "There is no implementation 'own_decod'"),
        (("own_decode", "tpu"), "There is no device 'tpu'"),
        (("own_decode",), "next: TRITON_INTERPRET=1 python"),
        (("cublas_bf16", "cuda"), "finds no CUDA GPU"),
    ],
)
def test_the_program_says_what_is_missing(words, said, capsys, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert conformance.main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and "Traceback" not in err
