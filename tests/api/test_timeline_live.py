"""`profile --no-counters` on the real thing: a GPU, torch.profiler, an example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]


def profiled(folder: Path, *arguments: str) -> dict:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    script = str(ROOT / "examples" / "decoder_block.py")
    done = subprocess.run(
        [sys.executable, "-m", "kernel_compass", "profile", "--no-counters",
         "--save", str(folder), "--output", str(folder / "report.json"), script, *arguments],
        capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return profiled(tmp_path_factory.mktemp("eager"), "--steps", "8")


def test_short_kernels_of_an_eager_decode_are_launch_bound(eager: dict) -> None:
    limiters = [k["diagnosis"]["limiter"] for k in eager["kernels"]]
    assert limiters.count("launch_bound") > 3
    assert eager["timeline"]["runs"]
    assert eager["timeline"]["graph_launches"] == 0


def test_products_are_known_by_their_bytes(eager: dict) -> None:
    moved = [k["timeline"]["compulsory_bytes"] for k in eager["kernels"]]
    ffn = 2 * (16 * 4096 + 4096 * 14336 + 16 * 14336)
    assert ffn in moved


def test_gaps_and_busy_time_make_the_span(eager: dict) -> None:
    (use,) = eager["timeline"]["devices"]
    assert use["busy_us"] + use["idle_us"] == pytest.approx(use["span_us"])
    assert eager["timeline"]["behind"] != "unknown"


def test_a_graph_is_recognized(tmp_path: Path) -> None:
    document = profiled(tmp_path, "--graph", "--steps", "8")
    assert document["timeline"]["graph_launches"] == 8
    in_graph = sum(k["timeline"]["launches_in_graph"] for k in document["kernels"])
    assert in_graph > 100
    assert list(tmp_path.glob("*_timeline.json.gz"))
