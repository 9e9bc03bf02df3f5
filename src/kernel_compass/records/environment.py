"""Where and when something was measured."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.records.device import Device


@dataclass(frozen=True)
class Environment:
    """Stored with every measured number; what is not known is `None`."""

    device: Device
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    kernel_compass: str | None = None
    date: str | None = None
    """ISO 8601, UTC."""


@dataclass(frozen=True)
class Clocks:
    """The clocks around a measurement, and why the driver held them back."""

    sm_mhz_min: float | None
    sm_mhz_max: float | None
    memory_mhz: float | None
    throttle_reasons: tuple[str, ...] = ()
    """NVML's names: `sw_power_cap`, `hw_thermal_slowdown`, ...; idle and application clocks are
    no throttling and are left out."""
    samples: int = 0

    @property
    def moved_pct(self) -> float | None:
        """How far the SM clock moved during the measurement, percent of its highest value."""
        if self.sm_mhz_min is None or not self.sm_mhz_max:
            return None
        return 100.0 * (self.sm_mhz_max - self.sm_mhz_min) / self.sm_mhz_max
