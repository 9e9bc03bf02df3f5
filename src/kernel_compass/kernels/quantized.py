"""A weight in codes and scales, as every provider takes it: nothing packed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.records.number_format import NumberFormat


@dataclass(frozen=True)
class QuantizedWeight:
    """`value[h, k, n] = (codes[h, k, n] - zeros[h, g, n]) * scales[h, g, n]`, g = k // group."""

    format: NumberFormat
    codes: Any
    """`(H, K, N)`, any strides: bfloat16 / float16, float8_e4m3fn, int8, or uint8 of 0 ... 15."""
    scales: Any | None
    """`(H, G, N)`, or `(H, K/128, N/128)` rounded up for blocks; float32, bfloat16 or float16;
    `None` for 16-bit weights."""
    zeros: Any | None = None
    """`(H, G, N)` uint8 of 0 ... 15 where the format has zero points, else `None`."""

    @property
    def heads(self) -> int:
        """H; 1 for linear."""
        return int(self.codes.shape[0])

    @property
    def reduction(self) -> int:
        """K."""
        return int(self.codes.shape[1])

    @property
    def columns(self) -> int:
        """N."""
        return int(self.codes.shape[2])

    def to(self, device: str) -> QuantizedWeight:
        """The same on another device."""
        scales, zeros = self.scales, self.zeros
        return replace(
            self,
            codes=self.codes.to(device),
            scales=None if scales is None else scales.to(device),
            zeros=None if zeros is None else zeros.to(device),
        )
