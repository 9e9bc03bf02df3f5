"""What a shell can hand to the command that is not nice, through the real command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "tests" / "golden" / "ncu" / "h200_bmm_warm.csv"


def run(*arguments: str | bytes, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "kernel_compass", "diagnose", *arguments],
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        **({"stdout": subprocess.PIPE} | options),
    )


def test_a_file_name_that_is_no_text_is_still_json(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/bad\xff.csv"
    shutil.copyfile(CAPTURE, odd)
    done = run("--json", odd)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kernels"]


def test_a_name_that_no_file_can_have_is_a_usage_error() -> None:
    done = run("a" * 300)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"File name too long" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_standard_output_is_no_bug() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(str(CAPTURE), stdout=full)
    assert done.returncode == 2
    assert b"No space left" in done.stderr
    assert b"bug" not in done.stderr


def test_a_pipe_as_a_capture_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = run(str(tmp_path / "fifo"))
    assert done.returncode == 3
    assert b"not a regular file" in done.stderr


def test_a_dash_as_output_is_standard_output(tmp_path: Path) -> None:
    done = run(str(CAPTURE), "--json", "--output", "-", cwd=tmp_path)
    assert json.loads(done.stdout)["schema"] == "kernel-compass/diagnosis/1"
    assert not list(tmp_path.iterdir())
