"""Find ncu on this machine, and what its version can do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling.quiet_run import run_quietly

ENVIRONMENT_VARIABLE = "KERNEL_COMPASS_NCU"
"""Names the ncu to use, before any that is found."""

COMMUNICATOR_OPTION = "--lockstep-kernel-launch"
"""With `--communicator`: profiles kernels that wait for each other (Nsight Compute 2026.1 on)."""

_PLACES = (
    ("/usr/local", "cuda*/bin/ncu"),
    ("/opt/nvidia/nsight-compute", "*/ncu"),
    ("/usr/local", "cuda*/nsight-compute*/ncu"),
    ("/opt/cuda", "nsight_compute/ncu"),
)
_NEEDED = ("--csv", "--page", "--target-processes", "--print-units", "--metrics", "--import")
_OPTION = re.compile(r"^ {1,4}(?:-\w \[ )?(--[a-z0-9][a-z0-9-]*)", re.MULTILINE)
_VERSION = re.compile(r"Version (\d+(?:\.\d+){1,2})")
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class NcuTool:
    """One installed ncu."""

    path: str
    version: str | None
    """`2025.3.1`; `None` where it does not say."""
    options: frozenset[str]
    """The long options that its help lists."""

    def knows(self, option: str) -> bool:
        """Whether this version has the option, e.g. `--import-source`."""
        return option in self.options


def find_ncu(environment: Mapping[str, str] | None = None) -> NcuTool:
    """Find ncu: `KERNEL_COMPASS_NCU`, then PATH, then the usual places, newest first.

    Raises:
        ProfilingError: there is none (`ncu_missing`), it does not run (`ncu_failed`), or it
            lacks options that are needed (`ncu_too_old`).
    """
    path = ncu_path(os.environ if environment is None else environment)
    with ThreadPoolExecutor(2) as pool:
        version, text = pool.map(lambda option: _output(path, option), ("--version", "--help"))
    found = _VERSION.search(version)
    tool = NcuTool(path, found[1] if found else None, frozenset(_OPTION.findall(text)))
    lacking = [option for option in _NEEDED if not tool.knows(option)]
    if lacking:
        raise ProfilingError(
            ProfilingCause.NCU_TOO_OLD,
            f"{path} (version {tool.version or 'unknown'}) lacks {', '.join(lacking)}.",
            "Install Nsight Compute 2020.1 or newer, or name another one with "
            f"{ENVIRONMENT_VARIABLE}=/path/to/ncu.",
        )
    return tool


def ncu_path(environment: Mapping[str, str]) -> str:
    """Where ncu is.

    Raises:
        ProfilingError: there is none (`ncu_missing`).
    """
    named = environment.get(ENVIRONMENT_VARIABLE)
    if named:
        found = shutil.which(named, path=environment.get("PATH"))
        if found is None:
            raise _missing(f"{ENVIRONMENT_VARIABLE} names {named}, which is no executable file.")
        return found
    on_path = shutil.which("ncu", path=environment.get("PATH", os.defpath))
    path = on_path or next(_installed(), None)
    if path is None:
        places = ", ".join(f"{root}/{pattern}" for root, pattern in _PLACES[:2])
        raise _missing(f"There is no ncu on PATH or in {places}.")
    return path


def _missing(found: str) -> ProfilingError:
    return ProfilingError(
        ProfilingCause.NCU_MISSING,
        found,
        "Install Nsight Compute (part of the CUDA toolkit; on Debian and Ubuntu the package "
        f"nsight-compute), or set {ENVIRONMENT_VARIABLE}=/path/to/ncu. A timeline of a PyTorch "
        "program needs no ncu: kernel-compass profile --no-counters SCRIPT; nor do captures made "
        "elsewhere: kernel-compass diagnose FILE.",
    )


def _installed() -> Iterator[str]:
    for root, pattern in _PLACES:
        paths = sorted(Path(root).glob(pattern), key=_release, reverse=True)
        yield from (str(p) for p in paths if p.is_file() and os.access(p, os.X_OK))


def _release(path: Path) -> tuple[list[int], str]:
    return [int(n) for n in re.findall(r"\d+", str(path))], str(path)


def _output(path: str, option: str) -> str:
    try:
        done = run_quietly([path, option], _TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _broken(path, option, str(error)) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise _broken(path, option, lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout


def _broken(path: str, option: str, reason: str) -> ProfilingError:
    return ProfilingError(
        ProfilingCause.NCU_FAILED,
        f"{path} {option} does not work: {reason}.",
        f"Reinstall Nsight Compute, or set {ENVIRONMENT_VARIABLE}=/path/to/ncu.",
    )
