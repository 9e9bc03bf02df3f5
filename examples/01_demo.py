"""First run: diagnose recorded H200 captures, run the loop on recorded studies of products and of a
program's step, profile live where a GPU with ncu is present."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from kernel_compass.api import diagnose_profiles
from kernel_compass.profiling.recorded import DESCRIPTIONS, recorded_profiles
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render

HERE = Path(__file__).resolve().parent


def show_recordings() -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    for name, description in DESCRIPTIONS.items():
        print(f"== recorded on an H200: {description}\n")
        report = diagnose_profiles(recorded_profiles(name))
        print(render(report, Format.TERMINAL, width, color=sys.stdout.isatty()))


def optimize_recorded() -> int:
    """The whole loop on what a study on an H200 measured: propose, screen, hold out, accept."""
    print("== the loop, on the times that were recorded on an H200\n", flush=True)
    recording = HERE.parent / "benchmarks/results/h200/optimize/mla.recording.json.gz"
    asked = ["mla:deepseek-v3", "--tokens", "1,16,64", "--budget", "3%"]
    return _optimize(*asked, "--device", f"recorded:{recording}")


def optimize_step_recorded() -> int:
    """The loop over a program's step, on the answers of a run on a CPU; nothing is measured."""
    print("== the loop over a program's step, on what was recorded on a CPU\n", flush=True)
    recording = HERE.parent / "benchmarks/results/cpu/steps/small_model.recording.json.gz"
    return _optimize("--captured", str(recording))


def _optimize(*asked: str) -> int:
    with tempfile.TemporaryDirectory() as home:
        table = ["--table", f"{home}/compass.json"]
        command = [sys.executable, "-m", "kernel_compass.cli.main", "optimize", *asked, *table]
        environment = {**os.environ, "KERNEL_COMPASS_HOME": home}
        return subprocess.run(command, env=environment, check=False).returncode


def profile_live() -> int:
    """Profile examples/two_bmms.py with the real ncu; say why where that cannot be."""
    missing = [
        what
        for what, found in (
            ("NVIDIA driver (nvidia-smi)", shutil.which("nvidia-smi")),
            ("torch", find_spec("torch")),
        )
        if not found
    ]
    if missing:
        print(f"== no live run: this machine has no {' and no '.join(missing)}.")
        print(f"   What it can do: {Path(sys.executable).parent / 'kernel-compass'} doctor")
        return 0
    print("== live: examples/two_bmms.py under ncu\n", flush=True)
    command = [sys.executable, "-m", "kernel_compass.cli.main", "profile"]
    regimes = ["--regime", "warm", "--regime", "in_situ", "--regime", "cold"]
    kernels = ["--kernels", "nvjet|gemm|cutlass|gemv"]
    script = [str(HERE / "two_bmms.py"), "--between", "200"]
    return subprocess.run([*command, *regimes, *kernels, *script], check=False).returncode


if __name__ == "__main__":
    show_recordings()
    sys.exit(optimize_recorded() or optimize_step_recorded() or profile_live())
