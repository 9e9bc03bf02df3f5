"""What a step does that a CUDA graph cannot replay, and what it writes: seen in one call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from kernel_compass.api.actions.freed_originals import tensors_in
from kernel_compass.api.actions.patching import Layer
from kernel_compass.dispatch_mode import without_compiler
from kernel_compass.kernels.library import torch_library

_SYNCS = frozenset(["aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"])
"""Operators that wait for the GPU: what follows depends on its answer."""


@dataclass
class Watched:
    """Of one call."""

    made: set[int] = field(default_factory=set)
    """Memory that operators made."""
    written: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Tensors that were there before and were written in place, by memory and layout."""
    objections: list[str] = field(default_factory=list)


@contextmanager
def watching(found: Watched) -> Iterator[None]:
    """Watch the operators of this thread, and Triton's launches: what those are handed may be
    written."""

    def replaced(below: Callable[..., Any], layer: Layer) -> Callable[..., Any]:
        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if layer.alive:
                for one in tensors_in((args, kwargs)):
                    if memory_of(one) not in found.made:
                        found.written[_place(one)] = one
            return below(kernel, *args, **kwargs)

        return run

    kinds = [
        getattr(sys.modules.get(f"triton.runtime.{name}"), kind, None)
        for name, kind in (("jit", "JITFunction"), ("interpreter", "InterpretedFunction"))
    ]
    layers = [Layer(kind, "run", replaced) for kind in kinds if kind is not None]
    try:
        with _kind()(found):
            yield
    finally:
        for layer in reversed(layers):
            layer.remove()


@cache
def _kind() -> Callable[[Watched], Any]:
    base = import_module("torch.utils._python_dispatch").TorchDispatchMode

    @without_compiler
    class Watch(base):  # type: ignore[misc, valid-type]
        """Looks at every operator, and changes nothing."""

        def __init__(self, found: Watched) -> None:
            super().__init__()
            self._found = found

        def __torch_dispatch__(
            self,
            func: Any,
            types: Any,
            args: Any = (),
            kwargs: Any = None,
        ) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            _look(self._found, func, args, kwargs, result)
            return result

    return Watch


def _look(found: Watched, func: Any, args: Any, kwargs: Any, result: Any) -> None:
    name = str(func._schema.name)
    if name in _SYNCS:
        found.objections.append(f"{name} waits for the GPU in the middle of the step")
    written = set()
    for argument, value in _arguments(func, args, kwargs):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for one in tensors_in(value):
                memory = memory_of(one)
                written.add(memory)
                if memory not in found.made:
                    found.written[_place(one)] = one
    views = any(one.alias_info is not None for one in func._schema.returns)
    moves = {one.device.type for one in tensors_in((args, kwargs))}
    for one in tensors_in(result):
        if not views and memory_of(one) not in written:
            found.made.add(memory_of(one))
        moves.add(one.device.type)
    if len(moves) > 1 and not _scalars(args, kwargs):
        found.objections.append(f"{name} moves data between {' and '.join(sorted(moves))}")


def _arguments(func: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    named = [(one, kwargs[one.name]) for one in func._schema.arguments if one.name in kwargs]
    return [*zip(func._schema.arguments, args, strict=False), *named]


def _scalars(args: Any, kwargs: Any) -> bool:
    """Whether all tensors on the CPU are single numbers, which launches take by value."""
    cpu = [one for one in tensors_in((args, kwargs)) if one.device.type == "cpu"]
    return bool(cpu) and all(one.dim() == 0 for one in cpu)


def memory_of(tensor: Any) -> int:
    """Which storage a tensor lies in."""
    return int(tensor.untyped_storage()._cdata)


def _place(tensor: Any) -> tuple[Any, ...]:
    layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return (memory_of(tensor), *layout)


@cache
def modes_active() -> Callable[[], list[Any]]:
    """Says which dispatch modes are entered."""
    found: Callable[[], list[Any]] = import_module(
        "torch.utils._python_dispatch"
    )._get_current_dispatch_mode_stack
    return found


def torch_flags() -> tuple[Any, ...]:
    """What decides how a step runs, beside its arguments."""
    torch = torch_library()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch.get_float32_matmul_precision(),
    )
