"""Profile a script under ncu (one regime, warm), or read a capture.

python -m profiling.ncu_runner --script S [--args "A"] [--output F.csv] [--label L]
python -m profiling.ncu_runner --parse-only F.csv [--label L]
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernel_compass.api import profile_target, read_capture
from kernel_compass.cli.exit_codes import ExitCode, exit_code_of
from kernel_compass.errors import KernelCompassError
from kernel_compass.records.profile import KernelProfile, Regime
from kernel_compass.records.request import ProfileRequest
from profiling._profiles import Profiles

__all__ = ["KernelProfile", "Profiles", "load_profiles", "main", "run_ncu"]


def run_ncu(
    script: str, args: str = "", output: str = "data/out.csv", label: str | None = None
) -> str:
    """Profile `python script args` in the warm regime and write ncu's CSV.

    Returns:
        The path of the CSV, `output`.

    Raises:
        ProfilingError: ncu or the script failed, or nothing was profiled.
    """
    target = Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        request = ProfileRequest(
            command=(sys.executable, script, *shlex.split(args)),
            regimes=(Regime.WARM,),
            label=label,
            save_dir=Path(folder),
        )
        profile_target(request)
        captures = sorted(Path(folder).glob("*.csv"))
        shutil.copyfile(captures[0], target)
    return str(target)


def load_profiles(csv_path: str, regime: str = "unknown") -> Profiles:
    """Read a capture.

    Raises:
        CaptureError: the file holds no usable metric table.
    """
    return Profiles(read_capture(csv_path, Regime(regime)))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    from profiling.bottleneck import classify, report

    parser = argparse.ArgumentParser(prog="python -m profiling.ncu_runner", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--script", help="Python script to profile")
    what.add_argument("--parse-only", metavar="F.csv", help="read a capture instead")
    parser.add_argument("--args", default="", help="arguments of the script, one string")
    parser.add_argument("--output", default="data/out.csv", metavar="F.csv")
    parser.add_argument("--label", default=None)
    options = parser.parse_args(argv)
    try:
        if options.parse_only:
            profiles = load_profiles(options.parse_only)
        else:
            path = run_ncu(options.script, options.args, options.output, options.label)
            profiles = load_profiles(path, "warm")
    except KernelCompassError as error:
        print(f"error: {error.found}", file=sys.stderr)
        if error.remedy:
            print(f"next: {error.remedy}", file=sys.stderr)
        return int(exit_code_of(error))
    try:
        print(report(classify(profiles), label=options.label), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.BROKEN_PIPE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
