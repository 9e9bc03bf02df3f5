"""The commands and imports that the project's first README showed, from a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WARM = "src/kernel_compass/profiling/captures/h200/two_bmms/two_bmms_warm.csv"
SNIPPET = f"""
from profiling.ncu_runner import run_ncu, load_profiles
from profiling.bottleneck import classify, report
profiles = classify(load_profiles({WARM!r}, "warm"))
print(report(profiles, label="first"))
"""


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"COLUMNS": "100"} | env,
    )


def test_parse_only_and_the_imports_say_the_same() -> None:
    command = run("-m", "profiling.ncu_runner", "--parse-only", WARM, "--label", "first")
    assert command.returncode == 0, command.stderr
    assert "NVIDIA H200" in command.stdout
    snippet = run("-c", SNIPPET.replace(', "warm"', ""))
    assert snippet.returncode == 0, snippet.stderr
    assert snippet.stdout == command.stdout


def test_a_profile_keeps_its_readable_names() -> None:
    names = (
        "kernel_name sm_pct mem_pct occupancy l1_hit_rate l2_hit_rate duration_us "
        "invocation_count avg_duration_us bottleneck"
    )
    code = SNIPPET + (
        f"for n in {names!r}.split():\n    print(n, getattr(profiles[0], n))\n"
        "print(profiles[0].summary())"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    assert "invocation_count 3" in done.stdout
    assert "bottleneck dram_bound" in done.stdout
    assert "3 x 37.86 us, dram_bound" in done.stdout
    assert "None" not in done.stdout


def test_a_missing_file_is_an_error_with_its_code() -> None:
    done = run("-m", "profiling.ncu_runner", "--parse-only", "nofile.csv")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: nofile.csv cannot be read")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shell")
def test_a_reader_that_went_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m profiling.ncu_runner --parse-only {WARM} | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "Traceback" not in done.stderr


def plan(*argv: str) -> subprocess.CompletedProcess[str]:
    return run(*argv, "--dry-run", "--gpu", "h200", "--json", PYTHONPATH=str(ROOT / "src"))


def test_mla_reconstruction_is_the_command_mla() -> None:
    words = ("--model", "deepseek-v3", "--tokens", "1")
    first = plan("-m", "kernels.mla_reconstruction", *words)
    assert first.returncode == 0, first.stderr
    assert first.stdout == plan("-m", "kernel_compass", "mla", *words).stdout
    assert "q_absorb" in first.stdout and "v_up" in first.stdout


def test_baselines_is_the_sweep_of_bf16() -> None:
    words = ("--n", "512,2048", "--tokens", "1")
    first = plan("-m", "kernels.baselines", *words)
    assert first.returncode == 0, first.stderr
    again = plan("-m", "kernel_compass", "sweep", *words, "--precisions", "bf16")
    assert first.stdout == again.stdout
    more = plan("-m", "kernels.baselines", *words, "--precisions", "w4a16_gk")
    assert '"w4a16_gk"' in more.stdout and '"bf16"' not in more.stdout
