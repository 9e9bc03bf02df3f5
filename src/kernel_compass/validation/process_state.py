"""State of a process that a candidate could leave changed: modes, hooks, handlers, overrides."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

_BACKENDS = ("cuda.matmul", "cudnn", "mkldnn", "opt_einsum", "mkldnn.matmul", "mkldnn.conv")
_SWITCHES = (
    "flash_sdp_enabled",
    "mem_efficient_sdp_enabled",
    "math_sdp_enabled",
    "cudnn_sdp_enabled",
    "preferred_linalg_library",
    "preferred_blas_library",
)
_PREFIXES = ("CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "PYTORCH_", "OMP_", "MKL_", "LD_", "PYTHON")
"""Variables that change how everything runs; libraries set others for themselves."""
_SIGNALS = tuple(sorted(signal.valid_signals()))
_NOT_RUN = ("Meta", "Python", "Functionalize", "Fake", "FuncTorchBatched")
"""Keys of kernels that no plain call reaches; torch registers its own for `vmap` at its first."""


def more_states(torch: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that have to be the same afterwards."""
    yield from _modes(torch)
    yield from _backends(torch)
    yield "overrides of torch's operations", _overrides(torch)
    yield "hooks on all modules", _module_hooks()
    yield "garbage collection's callbacks", tuple(map(id, gc.callbacks))
    yield "the hooks for exceptions", (id(sys.excepthook), id(sys.unraisablehook))
    yield "tracing of new threads", (threading.gettrace(), threading.getprofile())
    yield "signal handlers", tuple(map(_handler, _SIGNALS))
    yield "the timer of signals", tuple(_timer(which) for which in (0, 1, 2))
    yield "filters of all warnings", _blanket_filters()
    yield "the interval between switches of threads", sys.getswitchinterval()
    yield "the processors that this process may use", _processors()
    yield "the priority of this process", os.getpriority(os.PRIO_PROCESS, 0)
    yield "the environment's variables", frozenset(n for n in os.environ if n.startswith(_PREFIXES))


def _modes(torch: Any) -> Iterator[tuple[str, Any]]:
    functions = _asked("torch.overrides", "_get_current_function_mode_stack")
    dispatch = _asked("torch.utils._python_dispatch", "_get_current_dispatch_mode_stack")
    yield "modes that intercept torch functions", functions and tuple(map(id, functions))
    yield "modes that intercept torch operations", dispatch and tuple(map(id, dispatch))
    yield "autocast", (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"))
    yield "anomaly detection", torch.is_anomaly_enabled()
    yield "hooks on saved tensors", torch._C._autograd._top_saved_tensors_default_hooks(True)
    yield "filling of new memory", torch.utils.deterministic.fill_uninitialized_memory
    yield "warnings that are always given", torch.is_warn_always_enabled()


def _asked(module: str, name: str) -> Any:
    function: Callable[[], Any] | None = getattr(import_module(module), name, None)
    return None if function is None else function()


def _backends(torch: Any) -> Iterator[tuple[str, Any]]:
    for path in _BACKENDS:
        holder = torch.backends
        for part in path.split("."):
            holder = getattr(holder, part, None)
        for name in dir(type(holder)) if holder is not None else ():
            if name.startswith("_"):
                continue
            try:
                value = getattr(holder, name)
            except Exception:  # not built with it
                continue
            if isinstance(value, bool | int | str):
                yield f"torch.backends.{path}.{name}", value
    for name in _SWITCHES:
        if hasattr(torch.backends.cuda, name):
            yield f"torch.backends.cuda.{name}", str(getattr(torch.backends.cuda, name)())


def _overrides(torch: Any) -> tuple[str, ...]:
    """Registrations of Python functions for torch's own operations."""
    found = getattr(torch.library, "_impls", ())
    if not _registered or _registered[0] != found:  # thousands of names: gone through once
        aten = (name for name in found if name.startswith("aten/"))
        kept = tuple(sorted(n for n in aten if not n.endswith(_NOT_RUN)))
        _registered[:] = [frozenset(found), kept]
    return tuple(_registered[1])


_registered: list[Any] = []
"""All registrations that were seen last, and those of them that count."""


def _module_hooks() -> tuple[int, ...]:
    module = import_module("torch.nn.modules.module")
    names = [name for name in vars(module) if name.startswith("_global_") and "hooks" in name]
    return tuple(
        len(value) for name in sorted(names) if hasattr(value := getattr(module, name), "__len__")
    )


def _handler(number: int) -> Any:
    try:
        handler = signal.getsignal(number)
        return id(handler) if callable(handler) else None
    except (OSError, ValueError):
        return None


def _timer(which: int) -> bool:
    return signal.getitimer(which)[0] > 0.0


def _processors() -> frozenset[int] | None:
    known = hasattr(os, "sched_getaffinity")
    return frozenset(os.sched_getaffinity(0)) if known else None


def _blanket_filters() -> tuple[str, ...]:
    """Those that hide or raise warnings of every kind, everywhere."""
    return tuple(
        str(one[0])
        for one in warnings.filters
        if one[2] is Warning and one[1] is None and one[3] is None and not one[4]
    )
