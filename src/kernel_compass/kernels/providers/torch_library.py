"""What PyTorch offers without another package."""

from __future__ import annotations

from kernel_compass.kernels.providers.base import Library
from kernel_compass.kernels.providers.torch_compile import TorchCompileBf16
from kernel_compass.kernels.providers.torch_cublas import CublasBf16
from kernel_compass.kernels.providers.torch_eight_bit import IntMm, ScaledMmFp8
from kernel_compass.kernels.providers.torch_tinygemm import TinygemmW4

PROVIDER = Library(
    name="torch",
    package="torch",
    extra="gpu",
    offered=(CublasBf16(), TorchCompileBf16(), ScaledMmFp8(), IntMm(), TinygemmW4()),
)
