"""Clocks and throttle reasons while something is timed: read, never set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from kernel_compass.measurement.device import ClockReading
from kernel_compass.records.environment import Clocks

CLOCK_MOVED_PCT = 3.0
"""An SM clock that moves by more than this makes a time doubtful."""

THROTTLE_BITS: Mapping[int, str] = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""NVML's `nvmlClocksEventReason*` bits that hold a clock back (nvml.h); idle (0x01), application
clocks (0x02) and display clocks (0x100) are left out."""


class NvmlClocks:
    """Reads one GPU's clocks through NVML.

    Args:
        uuid: the GPU's, as `GPU-...`.

    Raises:
        ImportError: nvidia-ml-py is not installed.
        Exception: NVML's own errors, where it does not know the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = import_module("pynvml")
        self._nvml.nvmlInit()
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> ClockReading:
        """The clocks now."""
        nvml, handle = self._nvml, self._handle
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return ClockReading(
            float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            tuple(name for bit, name in THROTTLE_BITS.items() if bits & bit),
        )

    def memory_pin_tbs(self) -> float | None:
        """Highest memory clock x 2 transfers a clock x bus width, TB/s."""
        nvml = self._nvml
        try:
            mhz = nvml.nvmlDeviceGetMaxClockInfo(self._handle, nvml.NVML_CLOCK_MEM)
            bits = nvml.nvmlDeviceGetMemoryBusWidth(self._handle)
        except Exception:  # an older driver, or a MIG slice
            return None
        return float(mhz * 1e6 * 2 * bits / 8 / 1e12)


def summarize(readings: Sequence[ClockReading]) -> Clocks:
    """The range of some readings."""
    if not readings:
        return Clocks(None, None, None)
    sm = [reading.sm_mhz for reading in readings]
    reasons = dict.fromkeys(name for reading in readings for name in reading.throttle_reasons)
    memory = max(reading.memory_mhz for reading in readings)
    return Clocks(min(sm), max(sm), memory, tuple(reasons), len(readings))


def clock_warnings(clocks: Clocks) -> tuple[str, ...]:
    """What the clocks say against a time."""
    found = []
    if clocks.samples == 0:
        found.append("clocks were not read: install nvidia-ml-py to have them watched")
    moved = clocks.moved_pct
    if moved is not None and moved > CLOCK_MOVED_PCT:
        found.append(
            f"the SM clock moved by {moved:.1f} % ({clocks.sm_mhz_min:.0f} to "
            f"{clocks.sm_mhz_max:.0f} MHz) while this was timed"
        )
    if clocks.throttle_reasons:
        found.append(f"the driver held the clocks back: {', '.join(clocks.throttle_reasons)}")
    return tuple(found)
