"""Bytes read by whole CUDA graphs: one pass each, undisturbed between their launches.

Around a single launch ncu saves, restores and reads counters, which evicts some MB of L2; a graph
that is profiled as one workload runs its launches back to back.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling.ncu_command import ncu_environment
from kernel_compass.profiling.ncu_failures import known_failure
from kernel_compass.profiling.ncu_tool import find_ncu
from kernel_compass.profiling.quiet_run import run_quietly
from kernel_compass.records.counters import DRAM_BYTES_READ, L2_SECTORS_READ, SECTOR_BYTES


@dataclass(frozen=True)
class GraphTraffic:
    """What a program's CUDA-graph launches read."""

    dram_bytes_read: tuple[float, ...]
    """One a launch, in order; empty where there was none."""
    l2_bytes_read: tuple[float, ...]
    """The same, at L2; empty where it was not asked for."""
    printed: tuple[str, ...]
    """The lines that the program wrote to standard output."""
    failure: ProfilingError | None = None
    """Why no graph was seen."""


def graph_traffic(
    command: Sequence[str], timeout_s: float = 300.0, l2: bool = False
) -> GraphTraffic:
    """Bytes read by each CUDA-graph launch of a program.

    Args:
        command: the program.
        l2: whether those at L2 are counted beside those of DRAM.
        timeout_s: seconds until it is killed.

    Raises:
        ProfilingError: ncu is missing, cannot be run, or was not done in time.
    """
    argv = [str(find_ncu().path), "--csv", "--cache-control", "none", "--clock-control", "none"]
    argv += ["--print-units", "base", "--graph-profiling", "graph"]
    argv += ["--metrics", f"{DRAM_BYTES_READ},{L2_SECTORS_READ}" if l2 else DRAM_BYTES_READ]
    try:
        done = run_quietly([*argv, *command], timeout_s, ncu_environment())
    except subprocess.TimeoutExpired:
        found = f"ncu was not done after {timeout_s:g} s."
        raise ProfilingError(ProfilingCause.TIMEOUT, found, "Allow more time.") from None
    except OSError as error:
        found = f"ncu cannot be used here: {error.strerror or error}."
        remedy = "kernel-compass doctor tests ncu."
        raise ProfilingError(ProfilingCause.NCU_FAILED, found, remedy) from None
    lines = done.stdout.splitlines()
    rows = list(csv.DictReader(line for line in lines if line.startswith('"')))
    dram, sectors = (_values(rows, metric) for metric in (DRAM_BYTES_READ, L2_SECTORS_READ))
    printed = tuple(line for line in lines if line and not line.startswith(('"', "==")))
    failure = None if dram else _nothing(lines, done.stderr.splitlines())
    return GraphTraffic(dram, tuple(SECTOR_BYTES * n for n in sectors), printed, failure)


def _values(rows: Sequence[Mapping[str, str]], metric: str) -> tuple[float, ...]:
    """Of the graphs, in order."""
    graphs = (row for row in rows if "graph" in (row.get("Kernel Name") or "").lower())
    found = (row for row in graphs if row.get("Metric Name") == metric)
    return tuple(float(row["Metric Value"].replace(",", "")) for row in found)


def _nothing(output: Sequence[str], errors: Sequence[str]) -> ProfilingError:
    for line in (*output, *errors):
        failure = known_failure(line)
        if failure is not None:
            return failure
    last = [line for line in (*output, *errors) if line.strip()][-1:]
    found = f"ncu saw no CUDA graph. Its last line: {last[0]}" if last else "ncu saw no CUDA graph."
    remedy = "kernel-compass doctor tests ncu; profiling graphs as a whole needs ncu 2023.1."
    return ProfilingError(ProfilingCause.NOTHING_PROFILED, found, remedy)
