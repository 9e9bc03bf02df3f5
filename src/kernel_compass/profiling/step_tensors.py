"""Tensors of a step: which memory they share, what they are called, what is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from kernel_compass.records.step_capture import StepTensor

DEEPEST = 3
"""Lists and dicts in a module's attributes are looked into so far."""


class Storages:
    """Numbers for storages, each of them its own as long as this object lives."""

    def __init__(self, torch: Any) -> None:
        self._weak = import_module("torch.multiprocessing.reductions").StorageWeakRef
        self._torch = torch
        self._numbers: dict[int, int] = {}
        # A weak reference holds the number of a storage, not its memory: none is given twice.
        self._held: list[Any] = []
        self._others: dict[int, tuple[int, Any]] = {}

    def number(self, tensor: Any) -> int:
        """The number of a tensor's storage."""
        try:
            storage = tensor.untyped_storage()
            key = int(storage._cdata)
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse, or a wrapper
            return self._other(tensor)
        if key not in self._numbers:
            self._held.append(self._weak(storage))
            self._numbers[key] = len(self._numbers) + len(self._others)
        return self._numbers[key]

    def _other(self, tensor: Any) -> int:
        key = id(tensor)
        if key not in self._others:
            number = len(self._numbers) + len(self._others)
            self._others[key] = (number, tensor)
        return self._others[key][0]


def described(tensor: Any, storages: Storages, name: str | None = None) -> StepTensor:
    """A tensor as the capture holds it; whether it is constant is said later."""
    try:
        strides = tuple(int(one) for one in tensor.stride())
    except (RuntimeError, NotImplementedError):  # sparse
        strides = ()
    return StepTensor(
        shape=tuple(int(size) for size in tensor.shape),
        strides=strides,
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device.type),
        storage=storages.number(tensor),
        name=name,
    )


def version_of(tensor: Any) -> int | None:
    """How often a tensor was written; `None` where torch does not count it (inference tensors)."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return None


def copied(torch: Any, tensor: Any) -> Any:
    """A copy with the same strides that takes part in autograd as the original does."""
    source = tensor.detach()
    if source.layout is not torch.strided or type(source) is not torch.Tensor:
        return source.clone()
    if any(stride == 0 and size > 1 for size, stride in _axes(source)):
        base = source[tuple(0 if stride == 0 else slice(None) for _, stride in _axes(source))]
        found = base.clone().as_strided(source.shape, source.stride())
    else:
        found = torch.empty_strided(
            source.shape, source.stride(), dtype=source.dtype, device=source.device
        )
        found.copy_(source)
    return found.requires_grad_() if tensor.requires_grad else found


def _axes(tensor: Any) -> Iterator[tuple[int, int]]:
    return zip(tensor.shape, tensor.stride(), strict=True)


def bytes_of(tensors: Iterable[Any]) -> int:
    """What copies of them take."""
    return sum(one.numel() * one.element_size() for one in tensors)


def named_tensors(torch: Any, roots: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, buffers and other tensor attributes of modules, by qualified name.

    Args:
        torch: the module.
        roots: modules by qualified name, all of them, not the outermost alone.
    """
    found: dict[str, Any] = {}
    for place, module in roots.items():
        prefix = f"{place}." if place else ""
        own = {**module._parameters, **module._buffers}
        for name, tensor in own.items():
            if tensor is not None:
                found[f"{prefix}{name}"] = tensor
        for name, value in vars(module).items():
            if not name.startswith("_"):
                found.update(_inside(torch, f"{prefix}{name}", value, DEEPEST))
    return found


def _inside(torch: Any, name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth and isinstance(value, list | tuple):
        for at, one in enumerate(value):
            yield from _inside(torch, f"{name}.{at}", one, depth - 1)
    elif depth and type(value) is dict:
        for key, one in value.items():
            yield from _inside(torch, f"{name}.{key}", one, depth - 1)


class Snapshots:
    """What tensors held before a step wrote them, so that it can be put back."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._saved: list[tuple[Any, Any]] = []
        self._seen: set[tuple[Any, ...]] = set()

    def __len__(self) -> int:
        return len(self._saved)

    def save(self, tensor: Any, storage: int) -> None:
        """Keep a tensor's contents unless the same view of it is kept."""
        key: tuple[Any, ...]
        try:
            key = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        except (RuntimeError, NotImplementedError):
            key = (storage,)
        if key in self._seen or tensor.numel() == 0:
            return
        self._seen.add(key)
        view = tensor.detach()
        try:
            kept = view.clone()
        except self._torch.OutOfMemoryError:
            kept = view.cpu()
        self._saved.append((view, kept))

    def restore(self) -> None:
        """Put everything back; overlapping views from the last to the first."""
        for view, kept in reversed(self._saved):
            with (
                self._torch.inference_mode(view.is_inference()),
                self._torch.no_grad(),
                suppress(RuntimeError),  # memory that a freed graph owned
            ):
                view.copy_(kept)
