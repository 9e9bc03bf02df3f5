"""Where a weight lies, whether it is the same as before, and whether it can be packed just now."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Tensor


def memory_of(tensor: Tensor) -> int:
    """Which storage a tensor lies in; unique as long as a weak reference to it is held."""
    return int(tensor.untyped_storage()._cdata)


def weak(tensor: Tensor) -> Any:
    """A reference to a tensor's storage that does not hold it."""
    return _weak_reference()(tensor.untyped_storage())


@cache
def _weak_reference() -> Any:
    from importlib import import_module

    return import_module("torch.multiprocessing.reductions").StorageWeakRef


def capturing(tensor: Tensor) -> bool:
    """Whether launches are recorded and not run: nothing can be packed then."""
    return bool(tensor.is_cuda and torch_library().cuda.is_current_stream_capturing())


@cache
def _modes() -> Callable[[], list[Any]]:
    from importlib import import_module

    found: Callable[[], list[Any]] = import_module(
        "torch.utils._python_dispatch"
    )._get_current_dispatch_mode_stack
    return found


def plain_dispatch() -> bool:
    """Whether operators run as they are: under a dispatch mode they may be counted, or faked."""
    return not _modes()()


def digest(weight: Tensor) -> int:
    """A sum over the bits of a weight that depends on their places; waits for the GPU."""
    torch = torch_library()
    with torch._C.DisableTorchFunction(), torch.no_grad():
        width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        bits = weight.detach().view(width[weight.element_size()])
        total = 0
        for axis in range(bits.dim()):
            sums = bits.sum(dim=[d for d in range(bits.dim()) if d != axis], dtype=torch.int64)
            places = torch.arange(1, sums.numel() + 1, device=sums.device, dtype=torch.int64)
            total = total * 1_000_003 + int((sums * places * places).sum())
        return total
