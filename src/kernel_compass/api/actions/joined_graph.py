"""Products of one input computed as one in graphs that Inductor compiles.

`product.py` leaves an operator for every product that an entry is for. Inductor shows each graph
before it lowers it: functional, so that an input is the same wherever it is named. Products of one
input that make up a group become one operator whose columns are copied out of it, which Inductor
fuses with what reads them; those with no entry of their own become torch's products again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from kernel_compass.api.actions.mode import state_of
from kernel_compass.kernels.library import torch_library

LINEAR = "linear"
"""How a weight lies: `(N, K)`."""


@contextmanager
def joining() -> Iterator[None]:
    """Graphs that are compiled meanwhile are looked at."""
    config: Any = import_module("torch._inductor.config")
    before = config.post_grad_custom_pre_pass
    config.post_grad_custom_pre_pass = _pass()(before)
    try:
        yield
    finally:
        config.post_grad_custom_pre_pass = before


@cache
def _pass() -> Callable[[Any], Any]:
    base: Any = import_module("torch._inductor.custom_graph_pass").CustomGraphPass

    class Joining(base):  # type: ignore[misc]
        """The pass; `before`: the program's own, which goes first."""

        def __init__(self, before: Any) -> None:
            self._before = before if isinstance(before, list | tuple) else [before]

        def __call__(self, graph: Any) -> None:
            for one in self._before:
                if one is not None:
                    one(graph)
            join(graph)

        def uuid(self) -> Any:
            """For Inductor's cache; what it depends on beside is in the graph."""
            others = []
            for one in self._before:
                known = one.uuid() if hasattr(one, "uuid") else None
                if one is not None and known is None:
                    return None
                others.append(known)
            return ("kernel-compass joins products", 1, *map(str, others))

    found: Callable[[Any], Any] = Joining
    return found


def join(graph: Any) -> None:
    """Change a graph in place."""
    torch = torch_library()
    operator = torch.ops.kernel_compass.applied_product.default
    order = {node: at for at, node in enumerate(graph.nodes)}
    groups: dict[tuple[Any, int], list[Any]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is operator and node.args[3] == LINEAR:
            groups.setdefault((node.args[0], node.args[4]), []).append(node)
    for (a, number), nodes in groups.items():
        state = state_of(number)
        if state is None or state[0].shared is None:
            continue
        shared = state[0].shared
        left = nodes
        sizes = a.meta["val"].shape
        while True:
            found = shared.matching(
                [one.meta["val"].shape[-1] for one in left], sizes[-1], _rows(sizes)
            )
            members = [left[at] for at in found or ()]
            if not members or not _before(members, order):
                break
            _joined(graph, a, members, number)
            left = [one for one in left if one not in members]
        for one in left:
            if not state[0].has_own(tuple(one.args[1].meta["val"].shape)):
                _torchs(graph, one)


def _rows(sizes: Any) -> Any:
    rows = 1
    for size in sizes[:-1]:
        rows = rows * size
    return rows


def _before(members: list[Any], order: dict[Any, int]) -> bool:
    """Whether all weights are there, and different, where the first product is."""
    weights = [one.args[1] for one in members]
    first = order[members[0]]
    return len(set(weights)) == len(weights) and all(
        one.op in ("placeholder", "get_attr") or order.get(one, first) < first for one in weights
    )


def _joined(graph: Any, a: Any, members: list[Any], number: int) -> None:
    torch = torch_library()
    aten = torch.ops.aten
    weights = [one.args[1] for one in members]
    with graph.inserting_before(members[0]):
        whole = _call(graph, torch.ops.kernel_compass.applied_products.default, a, weights, number)
    start = 0
    for one in members:
        end = start + one.meta["val"].shape[-1]
        axis = one.meta["val"].dim() - 1
        with graph.inserting_before(one):
            part = _call(graph, aten.slice.Tensor, whole, axis, start, end)
            part = _call(graph, aten.clone.default, part, memory_format=torch.contiguous_format)
            if one.args[2] is not None:
                part = _call(graph, aten.add.Tensor, part, one.args[2])
        one.replace_all_uses_with(part)
        graph.erase_node(one)
        start = end


def _torchs(graph: Any, node: Any) -> None:
    """A product as torch has it."""
    aten = torch_library().ops.aten
    a, weight, bias = node.args[:3]
    sizes = node.meta["val"].shape
    if not all(isinstance(one, int) for one in sizes):
        return  # the operator calls torch
    with graph.inserting_before(node):
        rows = a
        if len(sizes) != 2:
            rows = _call(graph, aten.reshape.default, a, [-1, a.meta["val"].shape[-1]])
        turned = _call(graph, aten.permute.default, weight, [1, 0])
        if bias is None:
            found = _call(graph, aten.mm.default, rows, turned)
        else:
            found = _call(graph, aten.addmm.default, bias, rows, turned)
        if len(sizes) != 2:
            found = _call(graph, aten.reshape.default, found, list(sizes))
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _call(graph: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """A new node, with what it gives."""
    fx = import_module("torch.fx")
    node = graph.call_function(target, args, kwargs)

    def value(one: Any) -> Any:
        return one.meta["val"]

    given, named = fx.node.map_arg((args, kwargs), value)
    with _fakes(given):
        node.meta["val"] = target(*given, **named)
    return node


def _fakes(given: Any) -> Any:
    tree = import_module("torch.utils._pytree")
    torch = torch_library()
    found = next(one for one in tree.tree_leaves(given) if isinstance(one, torch.Tensor))
    return found.fake_mode
