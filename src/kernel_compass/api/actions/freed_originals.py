"""Weights moved to host memory while packed ones compute, and back, to the bit.

torch functions of the thread that the actions hold for bring a weight back before they read it; it
then stays. Nothing is moved where anything is compiled: what `torch.compile` made reads weights
without asking.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Tensor

_SIZES = ("dim", "size", "stride", "numel", "element_size", "storage_offset")
_METADATA = frozenset(["__get__", "__set__", *_SIZES, "is_inference", "untyped_storage"])
"""What does not look at a tensor's contents."""


class FreedOriginals:
    """The originals that lie in host memory."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, Any]] = {}
        self._never: set[int] = set()
        self._watching = False

    @property
    def freed_bytes(self) -> int:
        """What they would take."""
        return sum(copy.numel() for _, copy in self._held.values())

    def free(self, weight: Tensor) -> None:
        """Move a weight's memory to the host, unless it has to stay."""
        torch = torch_library()
        storage = weight.untyped_storage()
        memory = int(storage._cdata)
        if memory in self._never or memory in self._held or self._compiles():
            return
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        self._held[memory] = (storage, whole.cpu() if whole.is_cuda else whole.clone())
        del whole
        storage.resize_(0)

    def restore(self, weight: Tensor | None = None) -> None:
        """Bring a weight's memory back, or that of all; what is back stays."""
        one = None if weight is None else int(weight.untyped_storage()._cdata)
        wanted = list(self._held) if one is None else [one]
        for memory in wanted:
            if memory in self._held:
                self._bring_back(memory)

    def never(self, weight: Tensor) -> None:
        """This one stays on its device."""
        self.restore(weight)
        self._never.add(int(weight.untyped_storage()._cdata))

    def before(self, function: Any, args: Any, kwargs: Any) -> None:
        """Bring back what a function is about to read."""
        if not self._held or getattr(function, "__name__", "") in _METADATA:
            return
        for one in tensors_in((args, kwargs)):
            memory = int(one.untyped_storage()._cdata)
            if memory in self._held:
                self._never.add(memory)
                self._bring_back(memory)

    def _bring_back(self, memory: int) -> None:
        torch = torch_library()
        storage, copy = self._held.pop(memory)
        storage.resize_(copy.numel())
        with torch._C.DisableTorchFunction():
            torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).copy_(copy)

    def _compiles(self) -> bool:
        """Whether the program compiles; asks to be told when it begins to."""
        dynamo = import_module("torch._dynamo")
        if dynamo.utils.counters["stats"]:
            return True
        if not self._watching:
            dynamo.callback.callback_handler.register_start_callback(self._restore_and_stop)
            self._watching = True
        return False

    def _restore_and_stop(self, *_: Any) -> None:
        self._never |= set(self._held)
        self.restore()

    def close(self) -> None:
        """All are back; nobody is told anything any more."""
        self.restore()
        if self._watching:
            handler = import_module("torch._dynamo").callback.callback_handler
            handler.remove_start_callback(self._restore_and_stop)
            self._watching = False


def tensors_in(found: Any) -> Iterator[Tensor]:
    """The tensors in arguments, nested lists and dicts among them."""
    if isinstance(found, torch_library().Tensor):
        yield found
    elif isinstance(found, list | tuple):
        for one in found:
            yield from tensors_in(one)
    elif isinstance(found, dict):
        for one in found.values():
            yield from tensors_in(one)
