"""First run: diagnose recorded H200 captures, run the loop on recorded studies of products and of a
program's step, profile live where a GPU with ncu is present.

    python examples/01_demo.py [FOLDER]

The studies and their tables are kept in FOLDER, so that the commands that are printed can be run;
by default in `.demo` of the checkout, which each run empties.
"""

from __future__ import annotations

import os
import shlex
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
KEPT = HERE.parent / ".demo"


def show_recordings() -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    for name, description in DESCRIPTIONS.items():
        print(f"== recorded on an H200: {description}\n")
        report = diagnose_profiles(recorded_profiles(name))
        print(render(report, Format.TERMINAL, width, color=sys.stdout.isatty()))


def optimize_recorded(kept: Path) -> int:
    """The whole loop on what a study on an H200 measured: propose, screen, hold out, accept."""
    print("== the loop, on the times that were recorded on an H200\n", flush=True)
    recording = HERE.parent / "benchmarks/results/h200/optimize/mla.recording.json.gz"
    asked = ["mla:deepseek-v3", "--tokens", "1,16,64", "--budget", "3%"]
    return _optimize(kept, "products.json", *asked, "--device", f"recorded:{recording}")


def optimize_step_recorded(kept: Path) -> int:
    """The loop over a program's step, on the answers of a run on a CPU; nothing is measured."""
    print("== the loop over a program's step, on what was recorded on a CPU\n", flush=True)
    recording = HERE.parent / "benchmarks/results/cpu/steps/small_model.recording.json.gz"
    return _optimize(kept, "step.json", "--captured", str(recording))


def _optimize(kept: Path, table: str, *asked: str) -> int:
    command = [sys.executable, "-m", "kernel_compass.cli.main", "optimize", *asked]
    environment = {**os.environ, "KERNEL_COMPASS_HOME": str(kept)}
    done = subprocess.run([*command, "--table", str(kept / table)], env=environment, check=False)
    return done.returncode


def say_how_to_go_on(kept: Path) -> None:
    """The line after which what the loops printed as next commands works in a shell."""
    programs = shlex.quote(str(Path(sys.executable).parent))
    print(f"== studies and tables are kept in {kept}")
    print("   The commands above work in this shell after:\n")
    print(f"export PATH={programs}:$PATH KERNEL_COMPASS_HOME={shlex.quote(str(kept))}\n")


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


def main(words: list[str]) -> int:
    """The whole of it; the exit code."""
    kept = Path(words[0]).resolve() if words else KEPT
    if not words:
        shutil.rmtree(kept, ignore_errors=True)
    show_recordings()
    failed = optimize_recorded(kept) or optimize_step_recorded(kept)
    if not failed:
        say_how_to_go_on(kept)
    return failed or profile_live()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
