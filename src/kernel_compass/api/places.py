"""Where tasks run: workers of this machine, for a device that was named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_compass.api.machine_check import check_on
from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.execution.local_executor import LocalExecutor
from kernel_compass.execution.worker_mark import new_folder, sweep_folders
from kernel_compass.profiling.visible_gpus import VisibleGpu, visible_gpus
from kernel_compass.records.device import CPU, SIMULATED

PRELOAD = ("torch", "torch._dynamo")
"""The second wraps a function of the first when it is imported: no task's doing."""


def default_device() -> str:
    """The first GPU where there is one, else the CPU."""
    return "cuda:0" if visible_gpus() else CPU


@contextmanager
def local_workers(device: str, study: str = "") -> Iterator[tuple[LocalExecutor, str]]:
    """Workers for a device, and what the device is called in there.

    Args:
        device: `cuda` (all GPUs), `cuda:N`, `cpu` or `simulated`.
        study: its name is in the mark of every process.

    Raises:
        UsageError: there is no such device.
        MeasurementError: this machine shows no such GPU, or workers cannot be started.
    """
    on_gpu = device not in (CPU, SIMULATED)
    gpus = chosen_gpus(device) if on_gpu else ()
    preload = [*PRELOAD, *(["triton"] if on_gpu else [])]
    inside = "cuda:0" if on_gpu else device  # a worker sees its own GPU alone
    folder = new_folder()
    try:
        check = check_on(inside)
        with LocalExecutor(
            folder, gpus=gpus, study=study, preload=preload, check=check
        ) as executor:
            sweep_folders()
            yield executor, inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chosen_gpus(device: str) -> tuple[str, ...]:
    """The UUIDs of the GPUs that a device names; see `named_gpus`."""
    return tuple(gpu.uuid for gpu in named_gpus(device))


def named_gpus(device: str) -> tuple[VisibleGpu, ...]:
    """The GPUs that a device names.

    Raises:
        UsageError: it names none.
        MeasurementError: this machine shows no such GPU.
    """
    kind, _, index = device.partition(":")
    if kind != "cuda" or (index and not (index.isascii() and index.isdecimal())):
        raise UsageError(f"{device!r} is no device.", "Name cuda:0, cuda:1, ..., cpu.")
    gpus = visible_gpus()
    if not gpus or (index and int(index) >= len(gpus)):
        found = f"This machine shows {len(gpus)} GPUs, and {device} is none of them."
        remedy = "Look at `kernel-compass doctor`; without a GPU: --device simulated."
        raise MeasurementError(MeasurementCause.NO_GPU, found, remedy)
    return (gpus[int(index)],) if index else gpus
