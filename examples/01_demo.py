"""First run: diagnose the recorded H200 captures; profile live where a GPU with ncu is present."""

from __future__ import annotations

import shutil
import subprocess
import sys
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
    sys.exit(profile_live())
