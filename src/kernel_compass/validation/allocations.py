"""What a call allocates: what lies in it before it is written, and what lies around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kernel_compass.dispatch_mode import beside_compiled, operator_name, without_compiler
from kernel_compass.validation.guards import Guarded, guarded_block, overlaps

UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_FILLED = ("zeros", "zeros_like", "new_zeros", "full", "full_like", "new_full", "ones", "ones_like")
_MOST_HELD_BYTES = 1 << 30
"""Guards are looked at when the call is over, and hold memory until then."""


class Around:
    """Guards around all that was allocated while `filled_allocations` held.

    Args:
        torch: the module.
        byte: what they hold.
    """

    def __init__(self, torch: Any, byte: int) -> None:
        self._torch = torch
        self._byte = byte
        self._held_bytes = 0
        self.guards: list[Guarded] = []

    def put(self, made: Any) -> Any:
        """The same memory with something around it, or what was made where that cannot be."""
        plain = type(made) is self._torch.Tensor and made.layout is self._torch.strided
        if not plain or not made.numel() or made.device.type == "meta" or overlaps(made):
            return made
        self._held_bytes += made.numel() * made.element_size()
        if self._held_bytes > _MOST_HELD_BYTES or made.requires_grad or made.is_pinned():
            return made
        found = guarded_block(self._torch, made, self._byte, shown=False)
        found.value.copy_(made)
        self.guards.append(found)
        return found.value


@contextmanager
def filled_allocations(value: float, around: Around | None = None) -> Iterator[None]:
    """What is allocated without being written holds this value: floating-point tensors only.

    Args:
        value: NaN, 0.0.
        around: puts guards around it, and around what is allocated and filled.
    """
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

    @without_compiler
    @beside_compiled
    class Fill(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = function(*args, **(kwargs or {}))
            name = operator_name(function)
            if name in UNWRITTEN and made.dtype.is_floating_point:
                made.fill_(value)
            if around is not None and name in (*UNWRITTEN, *_FILLED):
                made = around.put(made)
            return made

    with Fill():
        yield
