"""What this machine can do: one check per part, each with what its lack costs and how to get it.

Nothing here needs any of the parts: a check whose question cannot be asked says so. CUDA is
initialised in child processes only.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_compass.errors import INSTALL_TORCH, KernelCompassError, ProfilingError
from kernel_compass.profiling import cuda_probe, metric_lists
from kernel_compass.profiling.device_probe import Gpu, probe_gpus, query_smi
from kernel_compass.profiling.ncu_runner import run_profile
from kernel_compass.profiling.ncu_tool import find_ncu
from kernel_compass.profiling.quiet_run import run_quietly
from kernel_compass.records.profile import Regime
from kernel_compass.records.request import Check, CheckStatus, ProfileRequest
from kernel_compass.units import bytes_text

PROBE_TIMEOUT_S = 60.0

_NO_PROFILING = "programs cannot be profiled here; captures made elsewhere can be diagnosed"
_THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_NVCC = ("/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc")


def checks() -> tuple[Check, ...]:
    """Examine GPU, driver, ncu and its permission, torch, triton, toolkit, clocks and L2.

    Takes a second without a GPU, some seconds with one: the permission is found out by profiling
    an empty kernel.
    """
    gpus = probe_gpus()
    facts = _run_probe()
    return (
        _guarded("GPU", lambda: _gpu(gpus, facts)),
        _guarded("driver", lambda: _driver(gpus, facts)),
        _guarded("ncu", _ncu),
        _guarded("counter permission", lambda: _permission(facts)),
        _guarded("torch", lambda: _package("torch", "PyTorch programs and kernels cannot run")),
        _guarded("triton", lambda: _package("triton", "Triton kernels cannot run")),
        _guarded("CUDA toolkit", _toolkit),
        _guarded("clocks", _clocks),
        _guarded("L2", lambda: _l2(facts)),
    )


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """A check that cannot be made is a finding as well."""
    try:
        return check()
    except KernelCompassError as error:
        return Check(name, CheckStatus.MISSING, error.found, _NO_PROFILING, error.remedy)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Check(name, CheckStatus.WARNING, f"could not be examined: {error}")


def _run_probe() -> dict[str, Any]:
    """What the first GPU says of itself, or `error`."""
    try:
        done = run_quietly(_probe_command(), PROBE_TIMEOUT_S)
        facts = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"an empty kernel did not end within {PROBE_TIMEOUT_S:.0f} s"}
    except (OSError, ValueError):
        return {"error": "the process that launches an empty kernel died"}
    return facts if isinstance(facts, dict) else {"error": "unreadable answer"}


def _probe_command() -> tuple[str, ...]:
    return (sys.executable, str(Path(cuda_probe.__file__)))


def _gpu(gpus: tuple[Gpu, ...], facts: dict[str, Any]) -> Check:
    cost = "nothing can be measured here; " + _NO_PROFILING
    if not gpus and "error" in facts:
        remedy = "In a container, start it with --gpus all; else install NVIDIA's driver."
        found = f"none: nvidia-smi does not answer, and {facts['error']}"
        return Check("GPU", CheckStatus.MISSING, found, cost, remedy)
    listed = [(gpu.name, gpu.compute_capability) for gpu in gpus]
    listed = listed or [(str(facts.get("name")), facts.get("compute_capability"))]
    found = ", ".join(f"{name} (compute capability {cc or 'unknown'})" for name, cc in listed)
    old = [name for name, cc in listed if cc and not metric_lists.is_supported(cc)]
    if old:
        remedy = f"Compute capability {metric_lists.OLDEST} or newer is needed."
        note = f"Nsight Compute does not profile {', '.join(old)}"
        return Check("GPU", CheckStatus.WARNING, found, note, remedy)
    if "error" in facts:
        remedy = "Look at nvidia-smi and dmesg; check CUDA_VISIBLE_DEVICES."
        return Check("GPU", CheckStatus.WARNING, f"{found}; {facts['error']}", cost, remedy)
    return Check("GPU", CheckStatus.OK, found)


def _driver(gpus: tuple[Gpu, ...], facts: dict[str, Any]) -> Check:
    versions = sorted({gpu.driver for gpu in gpus})
    if versions:
        return Check("driver", CheckStatus.OK, ", ".join(versions))
    if "error" not in facts:
        found = "there is one, but nvidia-smi does not answer"
        cost = "the GPU's architecture and clocks are not known before a run"
        return Check("driver", CheckStatus.WARNING, found, cost, "Put nvidia-smi on PATH.")
    remedy = "Install NVIDIA's driver; in a container, start it with --gpus all."
    return Check("driver", CheckStatus.MISSING, "nvidia-smi does not answer", _NO_PROFILING, remedy)


def _ncu() -> Check:
    tool = find_ncu()
    return Check("ncu", CheckStatus.OK, f"{tool.version or 'unknown version'} ({tool.path})")


def _permission(facts: dict[str, Any]) -> Check:
    """Profile an empty kernel: nothing else tells whether the counters may be read."""
    name = "counter permission"
    try:
        find_ncu()
    except KernelCompassError:
        found = "not tested: there is no ncu to read them with (see ncu)"
        return Check(name, CheckStatus.MISSING, found, _NO_PROFILING, "Get ncu first.")
    if "error" in facts:
        found = f"not tested: {facts['error']}"
        return Check(name, CheckStatus.MISSING, found, _NO_PROFILING, "Get the GPU to work first.")
    request = ProfileRequest(_probe_command(), (Regime.COLD,), timeout_s=PROBE_TIMEOUT_S)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        (profile,) = run_profile(request, target_stdout=sink)
    except ProfilingError as error:
        found = f"{error.found} ({error.cause.value})"
        return Check(name, CheckStatus.MISSING, found, _NO_PROFILING, error.remedy)
    finally:
        os.close(sink)
    if not profile.kernels or not profile.kernels[0].metrics:
        found = "an empty kernel was profiled, but no counter was read"
        return Check(name, CheckStatus.WARNING, found, _NO_PROFILING)
    count = len(profile.kernels[0].metrics)
    return Check(name, CheckStatus.OK, f"an empty kernel was profiled, {count} metrics read")


def _package(name: str, cost: str) -> Check:
    """The installed version, from its metadata: the package is not imported."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, CheckStatus.MISSING, "not installed in this Python", cost, INSTALL_TORCH)
    return Check(name, CheckStatus.OK, version)


def _toolkit() -> Check:
    nvcc = shutil.which("nvcc") or next((p for p in _NVCC if os.access(p, os.X_OK)), None)
    if nvcc is None:
        cost = "CUDA C++ sources cannot be compiled here; nothing else needs it"
        remedy = "Install the CUDA toolkit if you need nvcc."
        return Check("CUDA toolkit", CheckStatus.WARNING, "no nvcc", cost, remedy)
    done = run_quietly([nvcc, "--version"], PROBE_TIMEOUT_S)
    release = re.search(r"release ([\d.]+)", done.stdout)
    version = release[1] if release else "unknown version"
    return Check("CUDA toolkit", CheckStatus.OK, f"{version} ({nvcc})")


def _clocks() -> Check:
    """SM clocks and what holds them back, as they are now: read, never set."""
    rows = query_smi("clocks.sm,clocks.max.sm,clocks_event_reasons.active")
    rows = rows or query_smi("clocks.sm,clocks.max.sm,clocks_throttle_reasons.active")
    if not rows:
        cost = "a throttled GPU goes unnoticed"
        return Check("clocks", CheckStatus.MISSING, "nvidia-smi does not tell them", cost)
    found, reasons = [], set()
    for now, most, active, *_ in (row for row in rows if len(row) >= 3):
        found.append(f"SM at {now} of {most} MHz")
        mask = int(active, 16) if active.startswith("0x") else 0
        reasons |= {text for bit, text in _THROTTLE.items() if mask & bit}
    if reasons:
        cost = "times measured now are longer than this GPU needs"
        remedy = "Wait until it has cooled down or is idle: nvidia-smi -q -d PERFORMANCE."
        text = f"{', '.join(found)}; held back by: {', '.join(sorted(reasons))}"
        return Check("clocks", CheckStatus.WARNING, text, cost, remedy)
    return Check("clocks", CheckStatus.OK, ", ".join(found))


def _l2(facts: dict[str, Any]) -> Check:
    size = facts.get("l2_bytes")
    if not isinstance(size, int) or size <= 0:
        cost = "known only after a capture; whether an operand fits cannot be said before"
        return Check("L2", CheckStatus.MISSING, "unknown without a working GPU", cost)
    return Check("L2", CheckStatus.OK, f"{bytes_text(size)} (nominal)")
