"""Calibrations, stored and shipped: wires the probe of the machine to the store."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from kernel_compass.errors import CalibrationError
from kernel_compass.measurement import calibration_store as store
from kernel_compass.profiling.visible_gpus import VisibleGpu, driver_version, gpus_within
from kernel_compass.records.calibration import Calibration

_PATIENCE_S = 6.0
"""For nvidia-smi, when the question is only which calibration to take: a hung one never answers."""


def calibration(name_or_path: str | Path) -> Calibration:
    """A shipped calibration by name, a stored one by its file's name, or one in a file.

    Raises:
        CalibrationError: there is none of that name, or its file cannot be used.
    """
    return store.load(name_or_path)


def machine_calibration(device_name: str | None = None) -> Calibration | None:
    """The stored calibration of this machine's GPU; `None` where none was measured.

    One measured under another driver is better than none: it is returned with a note.

    Args:
        device_name: as the driver calls it; default: the GPU that this process sees. A name that
            is none of this machine's GPUs has no calibration here.

    Raises:
        CalibrationError: the GPUs of this machine differ and none is named, the stored file
            cannot be used, or nvidia-smi does not answer within seconds.
    """
    try:
        gpus = gpus_within(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        slow = f"nvidia-smi did not say within {_PATIENCE_S:g} s which GPU this machine has."
        remedy = "Name a calibration instead of this machine's, or see why nvidia-smi hangs."
        raise CalibrationError(slow, remedy) from None
    name = _only_name(gpus) if device_name is None else device_name
    if name not in [gpu.name for gpu in gpus]:
        return None
    driver = driver_version(_PATIENCE_S)
    found = store.find(name, driver)
    if found is not None:
        return found
    other = store.find_other_driver(name)
    if other is None:
        return None
    measured = other.environment.driver or "that was not noted"
    running = f"{driver} is running" if driver else "nvidia-smi does not tell which is running"
    note = f"measured under driver {measured}, and {running}: "
    return replace(other, notes=(*other.notes, f"{note}run `kernel-compass calibrate` again"))


def shipped_calibration(device_name: str | None) -> Calibration | None:
    """The shipped calibration of exactly this device, by the driver's name of it."""
    return store.shipped_for(device_name)


def shipped_calibrations() -> tuple[str, ...]:
    """The names of the calibrations that come with the package."""
    return store.list_shipped()


def save_calibration(calibration: Calibration, path: Path | None = None) -> Path:
    """Store a calibration as this machine's, or in a file; an older one is replaced whole.

    Raises:
        CalibrationError: it cannot be written.
    """
    return store.save(calibration, path)


def check_calibration_store() -> None:
    """Fail now where a calibration could not be stored after minutes of measuring.

    Raises:
        CalibrationError: the store cannot be written.
    """
    store.check_writable()


def _only_name(gpus: tuple[VisibleGpu, ...]) -> str | None:
    names = list(dict.fromkeys(gpu.name for gpu in gpus))
    if len(names) > 1:
        raise CalibrationError(
            f"This machine has different GPUs: {', '.join(names)}.",
            "Choose one with CUDA_VISIBLE_DEVICES, or name its calibration file.",
        )
    return names[0] if names else None
