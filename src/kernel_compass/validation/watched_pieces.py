"""Clocks and tensor operations by name, as they were: what a comparison or a time rests on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

_CLOCKS = (
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.time",
    "time.sleep",
)
_TORCH = (
    "torch.cuda.Event",
    "torch.cuda.Event.record",
    "torch.cuda.Event.elapsed_time",
    "torch.cuda.Event.synchronize",
    "torch.cuda.synchronize",
    "torch.cuda.graph",
    "torch.cuda.CUDAGraph",
    "torch.cuda.Stream",
    "torch.cuda.current_stream",
    "torch.cuda.stream",
    "torch.allclose",
    "torch.equal",
    "torch.isclose",
    "torch.isnan",
    "torch.isfinite",
    "torch.linalg.vector_norm",
    "torch.linalg.norm",
    "torch.norm",
    "torch.randn",
    "torch.rand",
    "torch.randint",
    "torch.empty",
    "torch.matmul",
    "torch.mm",
    "torch.bmm",
    "torch.Generator",
    "torch.Generator.manual_seed",
    "torch.Tensor.double",
    "torch.Tensor.to",
    "torch.Tensor.abs",
    "torch.Tensor.sum",
    "torch.Tensor.norm",
    "torch.Tensor.clone",
    "torch.Tensor.copy_",
    "torch.Tensor.__eq__",
    "torch.Tensor.__le__",
    "torch.Tensor.__lt__",
    "torch.Tensor.__gt__",
    "torch.Tensor.__ge__",
    "torch.Tensor.__sub__",
    "torch.Tensor.__truediv__",
    "torch.Tensor.all",
    "torch.Tensor.any",
    "torch.Tensor.isfinite",
    "torch.Tensor.isnan",
    "torch.Tensor.item",
    "torch.Tensor.data_ptr",
)


class WatchedPieces:
    """The functions and classes of these names, and the code that is in them.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self._pieces = dict(_pieces(torch))

    def changed(self) -> str | None:
        """The name of one that is another one now."""
        for name, (holder, attribute, then, code) in self._pieces.items():
            now = _plain(holder, attribute)
            if now is not then or _code_of(now) is not code:
                return name
        return None


def _pieces(torch: Any) -> Iterator[tuple[str, tuple[Any, str, Any, Any]]]:
    roots = {"time": time, "torch": torch}
    for path in (*_CLOCKS, *_TORCH):
        first, _, rest = path.partition(".")
        holder_path, _, attribute = rest.rpartition(".")
        holder = _followed(roots[first], holder_path) if holder_path else roots[first]
        if holder is not None and hasattr(holder, attribute):
            piece = _plain(holder, attribute)
            yield path, (holder, attribute, piece, _code_of(piece))


def _plain(holder: Any, attribute: str) -> Any:
    """What is stored there, without binding it: a method looked up twice is two objects."""
    for one in getattr(holder, "__mro__", (holder,)):
        if attribute in vars(one):
            return vars(one)[attribute]
    return getattr(holder, attribute, None)


def _code_of(piece: Any) -> Any:
    return getattr(piece, "__code__", None)


def _followed(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name, None)
    return root
