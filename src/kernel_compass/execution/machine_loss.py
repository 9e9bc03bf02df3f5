"""A machine that is lost, told apart from a task that fails."""

from __future__ import annotations

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.records.execution import TaskFailure
from kernel_compass.records.trial import Reason

TRIES = 2
"""Of the check: the driver may still be clearing up after a process that was killed."""
PAUSE_S = 3.0
"""Between them."""
_OF_THE_TASK = (
    Reason.CANCELLED,
    Reason.KEEPS_RUNNING,
    Reason.TOO_MUCH_OUTPUT,
    Reason.BUILD_FAILED,
    Reason.DOES_NOT_FIT,
    Reason.NOT_SUPPORTED,
)
"""What a machine that is lost does not look like."""
REMEDY = "Look at `nvidia-smi` and `dmesg` (Xid); a reset or a reboot may bring it back."


class MachineLost(MeasurementError):
    """What a task failed of, a check in a fresh process fails of as well.

    Args:
        name: of the place, `GPU ...` or `local/0`.
        task: the identifier of the one that was in flight.
        failure: its own.
        check: how the check failed.
    """

    def __init__(self, name: str, task: str, failure: TaskFailure, check: str) -> None:
        super().__init__(
            MeasurementCause.MACHINE_LOST,
            f"{name} does not work any more. {task!r} failed there ({failure.reason.value}: "
            f"{failure.detail}), and so did a check in a fresh process: {check}",
            REMEDY,
        )


def may_be_the_machine(failure: TaskFailure) -> bool:
    """Whether a failure may be none of its task's."""
    return failure.reason not in _OF_THE_TASK
