"""Whether a device still computes: asked in a fresh worker after a task failed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.execution import Task

CHECK = f"{__name__}:check_task"
COUNT = 1 << 16
"""Numbers that are added up."""
START_S, RUN_S = 90.0, 30.0


def check_on(device: str) -> Task:
    """The check of a device, as a worker calls it."""
    where = CPU if device == SIMULATED else device
    return Task("machine check", CHECK, {"device": where}, START_S, RUN_S, fresh=True)


def check_task(arguments: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> Any:
    """In a worker: add up numbers on the device.

    Args:
        arguments: `device`.
        tell: told when the device has been opened.

    Raises:
        MeasurementError: the sum is wrong.
        Exception: what torch says of a device that is not there.
    """
    torch = torch_library()
    numbers = torch.arange(COUNT, device=arguments["device"])
    tell({"phase": "run"})
    found, expected = int(numbers.sum()), COUNT * (COUNT - 1) // 2
    if found != expected:
        raise MeasurementError(
            MeasurementCause.MACHINE_LOST,
            f"The numbers up to {COUNT - 1} add up to {found}, not to {expected}.",
            "Do not measure there.",
        )
    return {"sum": found}
