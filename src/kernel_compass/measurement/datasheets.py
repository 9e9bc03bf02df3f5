"""What NVIDIA's datasheets promise: bounds that annotate a calibration and never predict.

Dense figures only. Where a datasheet prints the peak with 2:4 sparsity, half of it stands here and
the source says so: a sparse peak labelled dense doubles a roofline. Bandwidths and peaks are the
highest that NVIDIA prints for the product, so that a measurement above one is wrong, not lucky.
A product that is not listed, and a figure on which NVIDIA's documents differ, is `absent`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.records.calibration import Basis, Quantity

KEYS = ("dram_tbs", "bf16_tflops", "fp8_tflops", "int8_tflops", "fp32_tflops")
"""TB/s = 1e12 bytes/s; dense TFLOP/s (TOP/s for int8); fp32 without tensor cores."""

_HALVED = "tensor peaks printed with sparsity, halved"
_DENSE = "tensor peaks printed dense"


@dataclass(frozen=True)
class _Sheet:
    """One product's figures in the order of `KEYS`; `None` = not there, with `why`."""

    pattern: str
    """Of the driver's name, whole, without `NVIDIA `."""
    product: str
    figures: tuple[float | None, ...]
    printed: str
    why: str = "the format is not supported there"


_SHEETS = (
    _Sheet(r"A100-(SXM4|SXM)-40GB", "A100 40GB SXM", (1.555, 312, None, 624, 19.5), _DENSE),
    _Sheet(r"A100-(SXM4|SXM)-80GB", "A100 80GB SXM", (2.039, 312, None, 624, 19.5), _DENSE),
    _Sheet(r"A100-PCIE-40GB", "A100 40GB PCIe", (1.555, 312, None, 624, 19.5), _DENSE),
    _Sheet(r"A100 80GB PCIe", "A100 80GB PCIe", (1.935, 312, None, 624, 19.5), _DENSE),
    _Sheet(r"H100 80GB HBM3", "H100 SXM", (3.35, 989.5, 1979, 1979, 67), _HALVED),
    _Sheet(r"H200", "H200 SXM", (4.8, 989.5, 1979, 1979, 67), _HALVED),
    _Sheet(r"B200", "HGX B200", (8.0, 2250, 4500, 4500, 75), _HALVED),
    _Sheet(
        r"B300( SXM6( AC)?)?",
        "HGX B300",
        (8.0, 2250, 4500, None, 75),
        _HALVED,
        "NVIDIA's documents differ (150 to 4,500 TOP/s)",
    ),
)


def datasheet(device_name: str | None) -> Mapping[str, Quantity]:
    """The bounds of a device by its driver's name, one quantity for each of `KEYS`.

    Args:
        device_name: e.g. `NVIDIA H200`; a MIG slice, which has a share of them, counts as unknown.
    """
    name = (device_name or "").removeprefix("NVIDIA ").strip()
    for sheet in _SHEETS:
        if re.fullmatch(sheet.pattern, name):
            pairs = zip(KEYS, sheet.figures, strict=True)
            return {key: _quantity(sheet, key, value) for key, value in pairs}
    why = f"no datasheet is known here for {device_name or 'a device without a name'}"
    return {key: Quantity(None, Basis.ABSENT, why) for key in KEYS}


def _quantity(sheet: _Sheet, key: str, value: float | None) -> Quantity:
    origin = f"NVIDIA {sheet.product} datasheet"
    if value is None:
        return Quantity(None, Basis.ABSENT, f"{origin}: {sheet.why}")
    tensor = key in ("bf16_tflops", "fp8_tflops", "int8_tflops")
    source = f"{origin} ({sheet.printed})" if tensor else origin
    return Quantity(float(value), Basis.DATASHEET, source)
