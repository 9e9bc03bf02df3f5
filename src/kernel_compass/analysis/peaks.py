"""Which peak bounds a product's arithmetic: one lookup for the floor, the model, the roofline.

`Traffic.math` names a format, or `8bit`: an 8-bit kernel may multiply in fp8 or in int8, whichever
is faster on the machine (an H200: 1,474 TFLOP/s of fp8, 960 TOP/s of int8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.records.calibration import Basis, Calibration

EIGHT_BIT = "8bit"
FORMATS: Mapping[str, tuple[str, ...]] = {EIGHT_BIT: ("fp8", "int8")}
"""The formats that a kernel may choose from, where there is a choice."""
UNSUPPORTED = ("not supported", "has no such product")
"""What the `source` of an absent peak says where the device lacks the format: that of a datasheet,
that of a calibration."""


@dataclass(frozen=True)
class Peak:
    """A dense peak, and how it is known."""

    tflops: float
    """TFLOP/s (TOP/s for int8)."""
    format: str
    """`bf16`, `fp8`, `int8`, `fp32`."""
    basis: Basis
    """`datasheet` where nothing was measured."""

    @property
    def guess(self) -> str | None:
        """Why a time that rests on it is extrapolated; `None` where it was measured."""
        if self.basis is Basis.MEASURED:
            return None
        if self.basis is Basis.DATASHEET:
            return f"the {self.format} peak is the datasheet's, which no kernel reaches"
        return f"the {self.format} peak is {self.basis.value}"


def fastest(math: str, peaks: Mapping[str, float]) -> float | None:
    """The peak of this kind of arithmetic out of those known by format; `None` without one."""
    return max((peaks[name] for name in formats_of(math) if name in peaks), default=None)


def peak_of(math: str, calibration: Calibration) -> Peak | None:
    """The peak of a machine: a calibrated one where there is any, else the datasheet's bound."""
    quantities = [(name, calibration.peak_tflops.get(name)) for name in formats_of(math)]
    sheet = [(name, calibration.datasheet.get(f"{name}_tflops")) for name in formats_of(math)]
    for known in (quantities, sheet):
        found = [Peak(q.value, name, q.basis) for name, q in known if q is not None and q.value]
        if found:
            return max(found, key=lambda peak: peak.tflops)
    return None


def formats_of(math: str) -> tuple[str, ...]:
    """The formats a kernel may compute in: keys of `Calibration.peak_tflops`."""
    return FORMATS.get(math, (math,))


def supports(name: str, calibration: Calibration) -> bool:
    """Whether the device has arithmetic of this format, as far as its calibration says.

    It has not where there is neither a measured peak nor a datasheet's, and one of the two says
    why: a peak that nobody published says nothing.
    """
    pair = (calibration.peak_tflops.get(name), calibration.datasheet.get(f"{name}_tflops"))
    known = [quantity for quantity in pair if quantity is not None]
    if any(quantity.value is not None for quantity in known):
        return True
    return not any(words in quantity.source for quantity in known for words in UNSUPPORTED)
