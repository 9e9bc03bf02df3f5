"""The benchmark of the reader runs, on a small file and with limits that any machine keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "read_long_csv.py"


@pytest.mark.parametrize("options", [[], ["--comma", "--interleaved"]])
def test_benchmark(options: list[str]) -> None:
    command = [sys.executable, str(SCRIPT), "--megabytes", "4", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["launches"] > 500
    assert figures["peak_rss_mib"] < 150
