"""The loop over a script's kernels, step by step: profile, diagnose, select, propose, ask, apply.

python -m optimizer.loop --script S [--args "A"] [--iters 3] [--min-speedup 1.05]

It needs a GPU. What is applied are entries of a dispatch table that the script loads
(`kernel_compass.dispatch.load`); they are taken out again where the script does not gain.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from kernel_compass.api.script_doors import doors_of_this_machine
from kernel_compass.api.script_loop import ScriptOptions, improve_script
from kernel_compass.cli.exit_codes import ExitCode, exit_code_of
from kernel_compass.errors import KernelCompassError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m optimizer.loop", description=__doc__)
    parser.add_argument("--script", required=True, help="Python script to improve")
    parser.add_argument("--args", default="", help="arguments of the script, one string")
    parser.add_argument("--iters", type=int, default=3, help="kernels to try at most")
    parser.add_argument(
        "--min-speedup", type=float, default=1.05, help="of the script's GPU time, to be kept"
    )
    parser.add_argument("--table", type=Path, default=Path("compass.json"), metavar="FILE")
    parser.add_argument("--minutes", type=float, default=3.0, help="for each kernel")
    parser.add_argument("--budget", type=float, default=3.0, help="largest error, percent")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    given = parser.parse_args(argv)
    try:
        command = (sys.executable, given.script, *shlex.split(given.args))
        options = ScriptOptions(given.iters, given.min_speedup)
        doors = doors_of_this_machine(
            command, given.table, given.minutes, given.budget, given.yes, _say
        )
        improve_script(doors, options)
    except ValueError as error:  # an open quote
        print(f"error: --args: {error}", file=sys.stderr)
        return int(ExitCode.USAGE)
    except KernelCompassError as error:
        print(f"error: {error.found}", file=sys.stderr)
        if error.remedy:
            print(f"next: {error.remedy}", file=sys.stderr)
        return int(exit_code_of(error))
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
