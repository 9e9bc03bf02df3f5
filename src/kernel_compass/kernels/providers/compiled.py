"""Functions compiled by Inductor, one for each shape."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

from kernel_compass.kernels.providers.base import missing, needs_gpu, torch
from kernel_compass.records.contracts import Target, Tensor

SEARCHING = "max-autotune-no-cudagraphs"
"""Inductor's mode that measures its templates. It captures no CUDA graph of its own: one that is
being captured by whoever times cannot hold another."""


def compiled(
    function: Callable[..., Tensor], mode: str, whole: bool = True
) -> Callable[..., Tensor]:
    """A copy of `function`, compiled for one shape.

    Args:
        function: a plain one.
        mode: of Inductor.
        whole: whether it is an error where torch compiles a part of it, or nothing: it compiles
            nothing while a dispatch mode looks at what is called.

    Dynamo counts recompilations by code object, and after eight of one it would quietly run it
    uncompiled: every copy has its own.
    """
    assert isinstance(function, FunctionType)
    code, closure = function.__code__.replace(), function.__closure__
    given = function.__defaults__
    fresh = FunctionType(code, function.__globals__, function.__name__, given, closure)
    fresh.__kwdefaults__ = function.__kwdefaults__
    made: Callable[..., Tensor] = torch().compile(fresh, mode=mode, dynamic=False, fullgraph=whole)
    return made


def layout(*tensors: Tensor | None) -> tuple[Any, ...]:
    """What a compiled function is specialized to: shapes and strides."""
    return tuple(None if one is None else (one.shape, one.stride()) for one in tensors)


def cannot_compile(target: Target) -> str | None:
    """Why Inductor cannot compile for a target; `None` = it can."""
    if target.kind == "cuda":
        return missing("triton", target) or needs_gpu(target, (7, 0))
    try:
        import_module("torch._inductor.cpp_builder").get_cpp_compiler()
    except Exception as error:  # of several kinds, by version
        return f"Inductor needs a C++ compiler on a CPU, and found none ({type(error).__name__})"
    return None
