"""A request becomes command lines of ncu. Pure: nothing is run or looked up here.

Each capture takes two commands. The first runs the target and writes a report (`--export`), with
ncu's messages in a log file; the second turns the report into CSV (`--import`, under a second).
One command with `--csv` would do as well, but then ncu writes no line per kernel: with a report
the log names every kernel as it is profiled, which gives progress, tells a kernel that waits for
others from a slow one, and leaves a report that NVIDIA's own tools open.

Every setting that changes a number is passed explicitly and a user's `config.ncu-cfg` is not
read, so that a capture does not depend on an installation's defaults. Settings that the installed
version does not know are left out; filters never are, since they choose what is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_compass.profiling.ncu_tool import NcuTool
from kernel_compass.records.request import ProfileRequest

CLOCK_CONTROL = "none"
"""Clocks as the program runs with them: locked to base they would stretch every duration."""


@dataclass(frozen=True)
class RunSpec:
    """One run of the target under ncu."""

    name: str
    """Names its files: `warm`, `cold`, `in_situ`, ..."""
    cache_control: str
    """`all` flushes the caches before every pass, `none` leaves them."""
    replay_mode: str
    """`kernel` repeats each launch, `application` the whole program."""
    metrics: tuple[str, ...]


def profile_argv(
    tool: NcuTool, spec: RunSpec, request: ProfileRequest, report: Path, log: Path
) -> list[str]:
    """The command that runs the target and writes the report.

    Args:
        tool: the installed ncu.
        spec: cache control, replay mode and metrics of this run.
        request: the target and what to select in it.
        report: where the report goes, with the suffix `.ncu-rep`.
        log: where ncu's messages go.
    """
    argv = [tool.path]
    for option, value in _settings(spec):
        if tool.knows(option):
            argv += [option, value]
    argv += _filters(request)
    argv += ["--metrics", ",".join(spec.metrics)]
    argv += ["--export", str(report), "--log-file", str(log)]
    return [*argv, *request.command]


def export_argv(tool: NcuTool, report: Path, table: Path) -> list[str]:
    """The command that writes a report's metrics as CSV, one row per launch, in base units."""
    argv = [tool.path, "--import", str(report), "--csv", "--page", "raw"]
    return [*argv, "--print-units", "base", "--log-file", str(table)]


def ncu_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for ncu: `LC_ALL=C`, because it writes numbers in the user's locale."""
    return {**(os.environ if environment is None else environment), "LC_ALL": "C"}


def _settings(spec: RunSpec) -> Iterator[tuple[str, str]]:
    yield "--config-file", "off"
    yield "--target-processes", "all"
    yield "--cache-control", spec.cache_control
    yield "--clock-control", CLOCK_CONTROL
    yield "--replay-mode", spec.replay_mode
    if spec.replay_mode == "application":
        yield "--app-replay-match", "grid"
        yield "--app-replay-mode", "relaxed"
    yield "--graph-profiling", "node"
    yield "--check-exit-code", "yes"
    yield "--import-source", "no"
    yield "--import-sass", "no"


def _filters(request: ProfileRequest) -> list[str]:
    argv: list[str] = []
    if request.kernels is not None:
        argv += ["--kernel-name-base", "function", "--kernel-name", f"regex:{request.kernels}"]
    if request.nvtx is not None:
        argv += ["--nvtx", "--nvtx-include", request.nvtx]
    if request.launch_skip:
        argv += ["--launch-skip", str(request.launch_skip)]
    if request.launch_count is not None:
        argv += ["--launch-count", str(request.launch_count)]
    return argv
