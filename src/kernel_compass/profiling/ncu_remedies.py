"""What to do about each way in which profiling fails."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernel_compass.errors import ProfilingCause
from kernel_compass.profiling.ncu_tool import COMMUNICATOR_OPTION, NcuTool
from kernel_compass.records.request import ProfileRequest

_ELSEWHERE = (
    "Where it cannot be had (many rented machines), a timeline of a PyTorch program needs none: "
    "kernel-compass profile --no-counters SCRIPT. Or capture on another machine and read the file "
    "here: kernel-compass diagnose FILE."
)

REMEDIES: Mapping[ProfilingCause, str] = MappingProxyType(
    {
        ProfilingCause.NO_PERMISSION: (
            "The driver reserves the performance counters for administrators. In a container: "
            "start it with --cap-add=SYS_ADMIN. On the machine itself: run with sudo, or set the "
            "module option NVreg_RestrictProfilingToAdminUsers=0 (a file in /etc/modprobe.d: "
            "options nvidia NVreg_RestrictProfilingToAdminUsers=0) and reboot. " + _ELSEWHERE
        ),
        ProfilingCause.DRIVER_MISMATCH: (
            "nvidia-smi tells whether there is a driver, and which CUDA it supports. Take the "
            "ncu of a CUDA toolkit no newer than that (KERNEL_COMPASS_NCU=/path/to/ncu), or "
            "update the driver."
        ),
        ProfilingCause.COUNTERS_BUSY: (
            "Only one tool at a time can read the counters of a GPU. Pause DCGM (dcgmi profile "
            "--pause, afterwards --resume), stop other profilers and programs that use CUPTI "
            "(torch.profiler in the program itself, too). If no other tool runs, a lock file is "
            "left over: remove nsight-compute-lock in /tmp (or in TMPDIR), or set TMPDIR to a "
            "folder of your own."
        ),
        ProfilingCause.UNSUPPORTED_GPU: (
            "Nsight Compute needs a GPU of compute capability 7.0 (Volta) or newer, and a new "
            "GPU needs a new ncu: KERNEL_COMPASS_NCU=/path/to/ncu names another one."
        ),
    }
)
"""Remedies that depend on the cause alone."""


def stuck_remedy(tool: NcuTool) -> str:
    """What helps with kernels that wait for each other."""
    leave_out = "Leave such kernels out: --kernels '^(?!.*nccl)'."
    if tool.knows(COMMUNICATOR_OPTION):
        return (
            f"{leave_out} This ncu ({tool.version}) can also profile them when called directly, "
            f"with --communicator and {COMMUNICATOR_OPTION}; kernel-compass diagnose reads its "
            "reports."
        )
    return (
        f"{leave_out} To profile them, Nsight Compute 2026.1 or newer is needed (options "
        f"--communicator and {COMMUNICATOR_OPTION}); this one is {tool.version}."
    )


def timeout_remedy(request: ProfileRequest) -> str:
    """How to get a capture in the time there is."""
    fewer = "Profile less of it: --launch-count N, --kernels REGEX or --nvtx RANGE."
    if request.launch_count is not None:
        fewer = "Profile less of it: a smaller --launch-count, --kernels REGEX or --nvtx RANGE."
    return f"{fewer} Or give more time: --timeout SECONDS."


def nothing_profiled_remedy(request: ProfileRequest, connected: bool) -> str:
    """What may have kept kernels from being profiled, by what the request asked for."""
    hints = []
    if request.kernels is not None:
        hints.append(
            "--kernels must match the kernel's function name, without template arguments and "
            "namespaces; try without it."
        )
    if request.nvtx is not None:
        hints.append(
            "--nvtx: `name/` means push/pop ranges, `name` start/end ranges. Push/pop ranges "
            "hold for one thread: kernels that another thread launches, such as PyTorch's "
            "backward pass, are outside; use a start/end range for them."
        )
    if request.launch_skip:
        hints.append("--launch-skip may leave out every launch.")
    if not connected:
        hints.append(
            "Child processes are followed, but a server that was already running, or a worker "
            "started by another service, is not: profile the process that launches the kernels."
        )
    if connected and not hints:
        hints.append("The program initialised CUDA but launched no kernel of its own.")
    return " ".join(hints)
