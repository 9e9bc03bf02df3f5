"""Which operations and functions a call goes through."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from kernel_compass.dispatch_mode import beside_compiled, operator_name, without_compiler

_QUIET = ("view", "detach", "alias", "_unsafe_view", "as_strided", "empty", "clone", "copy_", "t")
"""Operations that compute nothing."""
_PYTHON = sysconfig.get_paths()["stdlib"]


_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "matmul", "linear", "conv", "attention")


def has_products(torch: Any, call: Callable[[], Any]) -> bool:
    """Whether a call goes through matrix products or convolutions; so if it cannot be told."""
    found = op_list(torch, call)
    if found is None:
        return True
    return any(part in name for name, _ in found for part in _PRODUCTS)


def op_list(torch: Any, call: Callable[[], Any]) -> list[tuple[str, tuple[Any, ...]]] | None:
    """The operations that compute something, with shapes and types of tensors; `None` = unknown.

    Kernels that are launched past torch's dispatcher (Triton's) are not in it.
    """
    try:
        mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    except (ImportError, AttributeError):
        return None
    found: list[tuple[str, tuple[Any, ...]]] = []

    @without_compiler
    @beside_compiled
    class Record(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = operator_name(function)
            if name not in _QUIET:
                tensors = [a for a in args if isinstance(a, torch.Tensor)]
                found.append((name, tuple((tuple(a.shape), str(a.dtype)) for a in tensors)))
            return function(*args, **(kwargs or {}))

    try:
        with Record():
            call()
    except Exception:  # what it says of itself elsewhere is enough
        return None
    return found


def work_of(torch: Any, call: Callable[[], Any]) -> Counter[str]:
    """Operations, with shapes and types, and Python functions of a call, and how often each occurs.

    Functions of torch and of Python's own library are none of them: locks and threads are work of
    nobody's.
    """
    found: Counter[str] = Counter()

    def look(frame: Any, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code is not own and not _is_library(code.co_filename):
            found[f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}()"] += 1

    own = look.__code__
    before = sys.getprofile()

    def profiled() -> None:
        collects = gc.isenabled()
        gc.disable()  # what a collection runs is no part of the call that happens to start it
        sys.setprofile(look)
        try:
            call()
        finally:
            sys.setprofile(before if callable(before) else None)
            if collects:
                gc.enable()

    for name, tensors in op_list(torch, profiled) or ():
        said = " ".join(f"{'x'.join(map(str, shape))} {kind}" for shape, kind in tensors)
        found[f"{name} {said}".strip()] += 1
    return Counter({n: c for n, c in found.items() if "__torch_dispatch__" not in n})


def is_operation(name: str) -> bool:
    """Whether an entry of `work_of` is an operation on tensors."""
    return not name.endswith("()")


def _is_library(file: str) -> bool:
    return "/torch/" in file or (file.startswith(_PYTHON) and "site-packages" not in file)


def executes(functions: Iterable[Any], call: Callable[[], Any]) -> str | None:
    """The first of some Python functions that a call goes through, under whatever name."""
    codes = {}
    for one in functions:
        code = getattr(getattr(one, "__func__", one), "__code__", None)
        if code is not None:
            codes[code] = str(getattr(one, "__name__", "a function"))
    seen: str | None = None

    def look(frame: Any, event: str, _argument: Any) -> None:
        nonlocal seen
        if event == "call" and seen is None:
            seen = codes.get(frame.f_code)

    before, in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(look)  # in those that start meanwhile
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(before if callable(before) else None)
        threading.setprofile(in_threads)
    return seen
