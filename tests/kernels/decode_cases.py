"""Configurations of the decode kernels with the formats and shapes they are run at on a GPU."""

from __future__ import annotations

from kernel_compass.kernels.decode import DecodeConfig

ODD_FORMATS = ("bf16", "w8a16_fp8", "w4a16_gk", "w4a16_g64_asym")
ODD_CONFIGS = (
    DecodeConfig("mma", 2, 2, 1, 1, 64, 8, 1),
    DecodeConfig("mma", 2, 1, 4, 2, 64, 16, 1, hold=True),
    DecodeConfig("mma", 4, 2, 2, 1, 64, 16, 1),
    DecodeConfig("wgmma", 2, 4, rows=64, tokens=32),
    DecodeConfig("wgmma", 2, 4, rows=64, tokens=16, split=3),
    DecodeConfig("wgmma", 2, 4, rows=64, tokens=64, split=2, registers=168),
    DecodeConfig("mma", 2, 1, 1, 1, 64, 16, ahead=2),
    DecodeConfig("plain", 4, 4, rows=64, tokens=16),
)
ODD_SHAPES = ((2, 7, 328, 90), (1, 40, 512, 128))
"""H, M, K, N. All configurations are legal at all of them."""
