"""`validate --sanitize`: a candidate under compute-sanitizer, called once.

PyTorch's caching allocator hands out parts of large blocks, inside of which an access out of
bounds is none to memcheck: it is switched off, and each allocation gets a guard behind it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kernel_compass
from kernel_compass.api.problem_candidates import judged
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import (
    KernelCompassError,
    MeasurementCause,
    MeasurementError,
    MissingDependency,
)
from kernel_compass.execution.worker_environment import without_secrets
from kernel_compass.kernels.library import torch_library
from kernel_compass.process_family import GRACE_S, end_family, marked, new_mark, termination_raises
from kernel_compass.records.loop import SANITIZER_TOOLS
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.validation.sanitizer_report import SanitizerReport, parsed

PROGRAM = "compute-sanitizer"
GUARD_BYTES = 1 << 16
"""Behind each allocation."""
TIMEOUT_S = 900.0
"""Instrumented kernels are some 10 to 100 times slower."""
CALLED = "kernel-compass: the candidate was called"
_SEED = 11


def sanitize(
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    gpu: str,
    sha256: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[SanitizerReport, ...]:
    """Call a candidate once under each tool.

    Args:
        source: the problem.
        workload: its sizes.
        candidate: what is called.
        gpu: as `CUDA_VISIBLE_DEVICES` calls it.
        sha256: of the candidate's own file.
        timeout_s: for each tool.

    Raises:
        MissingDependency: compute-sanitizer is not installed.
        MeasurementError: it did not end in time, or the candidate was never called.
    """
    program = find_program()
    request = {
        "source": plain(source),
        "workload": plain(workload),
        "candidate": plain(candidate),
        "sha256": sha256,
    }
    return tuple(_run(program, tool, request, gpu, timeout_s) for tool in SANITIZER_TOOLS)


def find_program(environ: Mapping[str, str] = os.environ) -> str:
    """Where compute-sanitizer is.

    Raises:
        MissingDependency: nowhere.
    """
    folders = [environ.get("PATH", "")]
    folders += [f"{environ[n]}/bin" for n in ("CUDA_HOME", "CUDA_PATH") if environ.get(n)]
    found = shutil.which(PROGRAM, path=os.pathsep.join([*folders, "/usr/local/cuda/bin"]))
    if found is None:
        raise MissingDependency(
            f"{PROGRAM} is not on the PATH, under $CUDA_HOME or /usr/local/cuda.",
            "It comes with the CUDA toolkit (package cuda-sanitizer-12-8 or its like); or leave "
            "--sanitize out.",
        )
    return found


def command_of(program: str, tool: str, request: Mapping[str, Any]) -> list[str]:
    """The command line of one tool."""
    guard = ["--padding", str(GUARD_BYTES)] if tool == "memcheck" else []
    return [
        program,
        *("--tool", tool, *guard, "--print-limit", "100"),
        *(sys.executable, "-m", __name__, json.dumps(request)),
    ]


def _run(
    program: str, tool: str, request: Mapping[str, Any], gpu: str, timeout_s: float
) -> SanitizerReport:
    here = str(Path(kernel_compass.__file__).parents[1])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    beside = {
        "CUDA_VISIBLE_DEVICES": gpu,
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONPATH": path,
    }
    mark = new_mark()
    environment = marked({**without_secrets(os.environ), **beside}, mark)
    with tempfile.TemporaryFile() as output, termination_raises():
        process = subprocess.Popen(
            command_of(program, tool, request),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise MeasurementError(
                MeasurementCause.TIMEOUT,
                f"{tool} did not end within {timeout_s:g} s.",
                "Name a smaller workload.",
            ) from None
        finally:
            end_family(process, GRACE_S, mark)
        output.seek(0)
        text = output.read().decode(errors="replace")
    report = parsed(text, tool)
    if report.errors is None or (CALLED not in text and not report.findings):
        lines = [line for line in text.splitlines() if line.strip()]
        last = lines[-1] if lines else "nothing"
        raise MeasurementError(
            MeasurementCause.CALLABLE_FAILED,
            f"{tool} did not get to call the candidate; it said last: {last}",
            "Run without --sanitize first; look at `kernel-compass doctor`.",
        )
    return report


def main() -> int:
    """Under the tool: call the candidate that the command line describes, as JSON."""
    request = json.loads(sys.argv[1])
    torch = torch_library()
    workload = reshaped(request["workload"], ProblemWorkload)
    try:
        problem, build, _ = judged(
            torch,
            reshaped(request["source"], ProblemSource),
            workload,
            reshaped(request["candidate"], Candidate),
            "cuda:0",
            sha256=request["sha256"],
        )
        given = problem.inputs(workload, _SEED)
        runner = build()
    except KernelCompassError as error:
        sys.stdout.write(f"error: {error}\n")
        return 1
    held = {n: v for n, v in given.items() if n in problem.held}
    state = runner.prepare(held)
    runner.run(state, {n: v for n, v in given.items() if n not in problem.held})
    torch.cuda.synchronize()
    sys.stdout.write(f"{CALLED}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
