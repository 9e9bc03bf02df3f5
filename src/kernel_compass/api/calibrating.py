"""Measure this machine: every task in a process of its own, so that CUDA never starts in ours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_compass.analysis.credibility import beyond_datasheet
from kernel_compass.codec.calibration_json import decode
from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.execution.tasks import run_task
from kernel_compass.measurement.calibration_worker import CEILINGS, NOISE
from kernel_compass.measurement.fresh import paired_samples
from kernel_compass.profiling.visible_gpus import driver_version, visible_gpus
from kernel_compass.records.calibration import Basis, Calibration, NoiseFloor, Quantity

TIMEOUT_S = 1800.0
"""A calibration takes minutes; one that takes this long hangs."""

NOISE_PROCESSES = 4
"""Fresh processes that compare a kernel with itself; some six seconds each."""
NOISE_PAIRS = 60

_NO_GPU_REMEDY = (
    "Without one, `kernel-compass calibrate --show h100` shows a shipped calibration and "
    "`kernel-compass advise ... --gpu h100` advises by it."
)
_DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")
"""Linux, WSL 2, Tegra."""


@dataclass(frozen=True)
class Step:
    """How far a calibration is."""

    part: str
    """What is being measured, in words."""
    done: int
    total: int
    """Parts there are; it grows where the cliff of a curve is refined."""


OnStep = Callable[[Step], None]


def calibrate(
    quick: bool = False,
    on_progress: OnStep | None = None,
    device: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Calibration:
    """Measure this machine's ceilings and its noise; nothing is stored.

    Args:
        quick: fewer sizes, samples and configurations, and no noise floor.
        on_progress: told before each part.
        device: index of the GPU as CUDA counts.
        timeout_s: seconds until it is given up.

    Raises:
        MeasurementError: no GPU, or measuring failed.
        MissingDependency: torch or triton is not installed.
    """
    if not visible_gpus() and not any(Path(node).exists() for node in _DEVICE_NODES):
        found = "This machine has no NVIDIA GPU that can be used: nvidia-smi shows none."
        raise MeasurementError(MeasurementCause.NO_GPU, found, _NO_GPU_REMEDY)
    deadline = time.monotonic() + timeout_s
    processes = 0 if quick else NOISE_PROCESSES
    tell = _Told(on_progress or (lambda _: None), processes)
    try:
        arguments = {"quick": quick, "device": device}
        answer = run_task(CEILINGS, arguments, tell.ceilings, timeout_s)
    except MeasurementError as error:
        if error.cause is MeasurementCause.NO_GPU:
            raise MeasurementError(error.cause, error.found, _NO_GPU_REMEDY) from None
        raise
    measured = decode(json.dumps(answer["calibration"]), "What the worker measured")
    environment = measured.environment
    if environment.driver is None:  # torch alone does not say; the store goes by it
        environment = replace(environment, driver=driver_version())
    noise = _noise(processes, device, tell, deadline)
    notes = (*measured.notes, *beyond_datasheet(measured))
    return replace(measured, environment=environment, noise=noise, notes=notes)


def _noise(processes: int, device: int, tell: _Told, deadline: float) -> NoiseFloor:
    """From fresh processes; where they fail, the ceilings are kept and the noise is absent."""
    if not processes:
        left_out = Quantity(None, Basis.ABSENT, "left out by --quick")
        return NoiseFloor(left_out, left_out)
    from kernel_compass.analysis.noise import noise_floor  # numpy: only where it is needed

    samples = []
    try:
        for process in range(processes):
            tell.noise(process)
            arguments = {"pairs": NOISE_PAIRS, "process": process, "device": device}
            left = max(deadline - time.monotonic(), 1.0)
            answer = run_task(NOISE, arguments, timeout_s=left)
            samples.append(paired_samples(answer["pairs"]))
        return noise_floor(samples)
    except MeasurementError as error:
        absent = Quantity(None, Basis.ABSENT, f"comparing a kernel with itself: {error.found}")
        return NoiseFloor(absent, absent)


class _Told:
    """Counts the parts of both tasks as one.

    Args:
        show: told each.
        extra: parts that come after the ceilings.
    """

    def __init__(self, show: OnStep, extra: int) -> None:
        self._show = show
        self._extra = extra
        self._total = 1

    def ceilings(self, message: Mapping[str, Any]) -> None:
        """A part of the ceilings, as the worker tells it."""
        self._total = message["total"]
        self._show(Step(message["part"], message["done"], self._total + self._extra))

    def noise(self, process: int) -> None:
        """One process of the noise."""
        words = f"a kernel against itself, process {process + 1} of {self._extra}"
        self._show(Step(words, self._total + process, self._total + self._extra))
