"""Where a Triton kernel can be launched: on a GPU, or on a CPU under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kernel_compass.errors import UsageError

HOW_ON_A_CPU = (
    "Move weights and activations to a CUDA GPU; or set TRITON_INTERPRET=1 before Python starts, "
    "as Triton decides when a kernel is imported: its interpreter then runs it here, slowly."
)
_compiling_only: list[object] = []


def check_can_launch(kernel: Any, *operands: Any) -> None:
    """Refuse what Triton would end in "0 active drivers" or a complaint about a pointer.

    Args:
        kernel: a function that `triton.jit` made: compiled, or interpreted in this process.
        operands: tensors it is given.

    Raises:
        UsageError: it would be compiled, and an operand lies on the CPU.
    """
    if all(tensor.device.type != "cpu" for tensor in operands) or _compiling_only:
        return
    if isinstance(kernel, import_module("triton").JITFunction):
        found = "An operand of this Triton kernel lies on the CPU, and the kernel is compiled."
        raise UsageError(found, HOW_ON_A_CPU)


@contextmanager
def compiling_only() -> Iterator[None]:
    """Launches are replaced meanwhile: where operands lie does not matter."""
    mark = object()
    _compiling_only.append(mark)
    try:
        yield
    finally:
        _compiling_only.remove(mark)
