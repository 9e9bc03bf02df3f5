"""Which calibration a command rests on: a named one, this machine's, or the shipped one."""

from __future__ import annotations

from collections.abc import Callable

from kernel_compass.api.calibrations import (
    calibration,
    machine_calibration,
    shipped_calibration,
    shipped_calibrations,
)
from kernel_compass.errors import CalibrationError
from kernel_compass.measurement.calibration_store import stored
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.device import Device

NONE = "none"
"""What asks for no calibration at all."""
THIS = "this"
"""What asks for this machine's own."""
_ONE_OF_IT = "--calibration NAME|FILE, or kernel-compass calibrate on it"


def capture_calibration(
    word: str | None, device: Device | None, warn: Callable[[str], None] | None = None
) -> Calibration | None:
    """The calibration that a capture's headroom rests on.

    Without a word it is this machine's own if the capture's device has the same name, else the
    shipped one of exactly that name, else none: another GPU's ceilings say nothing.

    Args:
        word: a name, a file, `this`, `none`, or `None` to choose by the device.
        device: the GPU the capture was taken on, as far as it says.
        warn: takes why this machine's own, which nobody asked for, was passed over.

    Raises:
        CalibrationError: there is no calibration of this name, or its file cannot be used.
    """
    if word == NONE:
        return None
    if word == THIS:
        return _own()
    if word is not None:
        return calibration(word)
    if device is None or device.name is None:
        return None
    try:  # the driver is asked only where something was ever measured
        own = machine_calibration(device.name) if stored() else None
    except CalibrationError as error:
        own = None
        if warn is not None:
            warn(f"this machine's own calibration is passed over: {error.found}")
    return own or shipped_calibration(device.name)


def missing_calibration(word: str | None, device: Device | None, lost: str) -> list[str]:
    """Why a report has no calibration, unless that was asked for.

    Args:
        word: as for `capture_calibration`, which found none.
        device: the GPU of the capture, as far as it says.
        lost: what the report lacks for it.
    """
    if word == NONE:
        return []
    if device is None or device.name is None:
        return [f"the GPU is not stated, so there is no calibration of it: {lost}; {_ONE_OF_IT}"]
    return [f"no calibration of this GPU, {device.name}: {lost}; {_ONE_OF_IT}"]


def advised_calibration(word: str | None) -> Calibration:
    """The calibration that advice rests on: a named one, or this machine's.

    Raises:
        CalibrationError: there is none; lists the shipped ones.
    """
    return _own() if word is None or word == THIS else calibration(word)


def _own() -> Calibration:
    own = machine_calibration()
    if own is None:
        names = ", ".join(shipped_calibrations())
        raise CalibrationError(
            "This machine has no calibration of its own.",
            f"Name a shipped one ({names}), or run `kernel-compass calibrate` on a GPU.",
        )
    return own
