"""What kernel tests share: Triton's interpreter on machines without a GPU, hostile operands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

INTERPRETER_WARNING = "ignore:Conversion of an array with ndim:DeprecationWarning"
"""What Triton 3.6 does with a loop bound; numpy 2.4 refuses it."""
SEED = 20


def torch_with_interpreter() -> Any:
    """torch, with kernels that are imported from now on run by Triton's interpreter.

    Skips the test module by name where torch or triton is missing, and where there is a GPU: the
    switch counts for the whole process, and kernels have to run on the GPU there.
    """
    if shutil.which("nvidia-smi") or os.environ.get("KERNEL_COMPASS_REQUIRE_GPU"):
        pytest.skip("there is a GPU: its tests run the kernels", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"
    torch = pytest.importorskip("torch", reason="kernels need torch")
    pytest.importorskip("triton", reason="kernels need triton")
    from kernel_compass.kernels.rounding import INTERPRETED

    assert INTERPRETED.value, "a kernel file was imported before the interpreter was chosen"
    return torch


def gaussian(torch: Any, *sizes: int) -> Any:
    """float32, the same at every call."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(SEED))


def _heavy_tails(torch: Any, values: Any) -> Any:
    divisors = gaussian(torch, *values.shape).roll(1, -1).abs().clamp(min=0.02)
    return values / divisors.to(values.device)


def _outlier_channel(torch: Any, values: Any) -> Any:
    values = values.clone()
    values[..., values.shape[-1] // 2] *= 200
    return values


def _zeros_and_tiny(torch: Any, values: Any) -> Any:
    values = values.clone()
    values[..., 0::2, :] = 0
    values[..., 1::4, :] *= 2.0**-110
    return values


HOSTILE: dict[str, Callable[[Any, Any], Any]] = {
    "heavy tails": _heavy_tails,
    "outlier channel": _outlier_channel,
    "huge": lambda torch, values: values * 2.0**100,
    "rows of zeros and tiny ones": _zeros_and_tiny,
    "powers of two": lambda torch, values: values.sign() * 2.0 ** values.mul(3).round(),
    "all the same": lambda torch, values: values * 0 + 0.7,
}
"""Activations that are hard on a scale, from Gaussian ones `(H, M, K)`."""


def strided(torch: Any, values: Any, dtype: Any, offset: int = 0) -> Any:
    """The values in a view of a larger buffer: heads inside rows, columns between, `offset`
    elements from an aligned address."""
    heads, rows, depth = values.shape
    buffer = torch.zeros(rows * heads * (depth + 3) + offset, dtype=dtype, device=values.device)
    view = buffer[offset:].view(rows, heads, depth + 3)[:, :, 1 : depth + 1].transpose(0, 1)
    view.copy_(values)
    return view
