"""Every implementation on a GPU, each in a process of its own: what one breaks, the next has whole.

One by itself: `python tests/kernels/providers/conformance.py NAME` with `src` on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_compass.kernels.providers.registry import all_implementations

SUITE = Path(__file__).with_name("conformance.py")
SRC = SUITE.parents[3] / "src"
LONGEST_S = 540
"""Libraries compile and tune every shape at its first launch."""


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in all_implementations()])
def test_conforms_on_a_gpu(name: str) -> None:
    found = _suite(name)
    if found["unusable"]:
        pytest.skip(f"{name} cannot run here: {'; '.join(found['unusable'])}")
    assert found["computed"], f"{name}: nothing was computed"
    failed = [f"{check}: {why}" for check, why in found["failures"].items()]
    assert not failed, f"{name} fails {len(failed)} checks:\n" + "\n".join(failed)


def _suite(name: str) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, (str(SRC), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(SUITE), name, "cuda"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert done.returncode == 0, f"{name}: exit code {done.returncode}\n{done.stderr[-3000:]}"
    assert lines, f"{name}: printed nothing\n{done.stderr[-3000:]}"
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
