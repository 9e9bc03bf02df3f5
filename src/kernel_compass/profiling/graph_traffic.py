"""DRAM bytes of whole CUDA graphs: one pass each, undisturbed between their launches.

Around a single launch ncu saves, restores and reads counters, which evicts some MB of L2; a graph
that is profiled as one workload runs its launches back to back.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Sequence

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling.ncu_command import ncu_environment
from kernel_compass.profiling.ncu_failures import known_failure
from kernel_compass.profiling.ncu_tool import find_ncu
from kernel_compass.profiling.quiet_run import run_quietly

DRAM_READS = "dram__bytes_read.sum"


def graph_dram_reads(command: Sequence[str], timeout_s: float = 300.0) -> tuple[list[float], str]:
    """Bytes read from DRAM by each CUDA-graph launch of a program, and what the program printed.

    Args:
        command: the program.
        timeout_s: seconds until it is killed.

    Raises:
        ProfilingError: ncu is missing, may not read counters, or saw no graph.
    """
    argv = [str(find_ncu().path), "--csv", "--cache-control", "none", "--clock-control", "none"]
    argv += ["--print-units", "base", "--graph-profiling", "graph", "--metrics", DRAM_READS]
    try:
        done = run_quietly([*argv, *command], timeout_s, ncu_environment())
    except subprocess.TimeoutExpired:
        found = f"ncu was not done after {timeout_s:g} s."
        raise ProfilingError(ProfilingCause.TIMEOUT, found, "Allow more time.") from None
    lines = done.stdout.splitlines()
    table = csv.DictReader(line for line in lines if line.startswith('"'))
    rows = [row for row in table if row.get("Metric Name") == DRAM_READS]
    graphs = [row for row in rows if "graph" in (row.get("Kernel Name") or "").lower()]
    if not graphs:
        raise _nothing(lines, done.stderr.splitlines())
    reads = [float(row["Metric Value"].replace(",", "")) for row in graphs]
    printed = [line for line in lines if not line.startswith(('"', "=="))]
    return reads, "\n".join(printed)


def _nothing(output: Sequence[str], errors: Sequence[str]) -> ProfilingError:
    for line in (*output, *errors):
        failure = known_failure(line)
        if failure is not None:
            return failure
    last = [line for line in (*output, *errors) if line.strip()][-1:]
    found = f"ncu saw no CUDA graph. Its last line: {last[0]}" if last else "ncu saw no CUDA graph."
    remedy = "kernel-compass doctor tests ncu; profiling graphs as a whole needs ncu 2023.1."
    return ProfilingError(ProfilingCause.NOTHING_PROFILED, found, remedy)
