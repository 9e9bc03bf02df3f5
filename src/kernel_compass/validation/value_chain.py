"""What the outputs of a call are made of: the chain of operations from inputs to outputs.

A value is known by the operation that makes it, by the values which that takes, and by how these
lie in memory. Operations that change no value make none: copies, views, a zero added, a factor of
one, a way there and back. So the same operations on the same operands are the same chain, however
they are spelled; another type, layout or split of an operand, or another operation, is another.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kernel_compass.dispatch_mode import beside_compiled, operator_name, without_compiler
from kernel_compass.validation.same_values import layout_of, reach_of, same_values, tensors_in

Node = frozenset[str]
"""The values that memory holds, by name; none where it was filled or never written."""

_NOTHING: Node = frozenset()
_FILLS = ("empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "new_full")
_FILLED = ("zero_", "fill_")
_JOINS = ("cat", "stack", "slice_scatter", "select_scatter")
_CASTS = ("_to_copy", "copy_")
_PRODUCTS = ("mm", "bmm")
_PRODUCTS_AND_SUMS = ("addmm", "baddbmm", "addmm_", "baddbmm_")
_EITHER_WAY_ROUND = ("add", "mul", "maximum", "minimum")
_REMEMBERED = 8
"""Values made last that a later one is compared with: who doubles and halves has made none."""
_REMEMBERED_BYTES = 1 << 28
_FEWEST = 8
"""Fewer numbers may be others' by chance."""


@dataclass(frozen=True)
class Made:
    """What came of a call."""

    outputs: tuple[Node, ...]
    """For each output, the operations whose results it consists of, and names of inputs."""
    names: Mapping[str, str]
    """What operations are called."""
    count: int
    """Operations, those that change no value and copies among them; views are none."""

    @property
    def last(self) -> tuple[str, ...]:
        """Operations that the outputs come from; empty where one of them comes from none."""
        if not all(any(one in self.names for one in node) for node in self.outputs):
            return ()
        found = (self.names.get(one) for node in self.outputs for one in sorted(node))
        return tuple(dict.fromkeys(name for name in found if name))


def made_of(
    torch: Any, inputs: Mapping[str, Any], call: Callable[[], Any], known: Made | None = None
) -> Made | None:
    """Follow values through a call; `None` = that cannot be done.

    Kernels that are launched past torch's dispatcher (Triton's) are not seen: what they write is
    made of nothing, unless it is the very result that `known` ends in and that was made, too.

    Args:
        torch: the module.
        inputs: tensors by name.
        call: gives tensors, in any container.
        known: of another call with the same inputs.
    """
    try:
        mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    except (ImportError, AttributeError):
        return None
    wanted = known.outputs if known else ()
    chain = _Chain(torch, inputs, frozenset(one for node in wanted for one in node))

    @without_compiler
    @beside_compiled
    class Follow(mode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return chain.through(function, args, kwargs or {})

    try:
        with Follow(), _in_new_threads(lambda: Follow().__enter__()):
            outputs = list(tensors_in(torch, call()))
        nodes = [chain.end(one, wanted[i : i + 1]) for i, one in enumerate(outputs)]
    except Exception:  # what it says of itself elsewhere is enough
        return None
    return Made(tuple(nodes), chain.names, chain.count)


@contextmanager
def _in_new_threads(begin: Callable[[], object]) -> Iterator[None]:
    """Do something first in each thread that starts within the block."""
    before = threading.getprofile()

    def first(*_: Any) -> None:
        sys.setprofile(None)
        begin()

    threading.setprofile(first)
    try:
        yield
    finally:
        threading.setprofile(before)


@dataclass(frozen=True)
class _Operand:
    """What an operation reads."""

    value: Any
    """As it was before."""
    node: Node
    text: str
    """Its values, type and layout."""


class _Chain:
    """The values that memory holds at each moment of a call."""

    def __init__(self, torch: Any, inputs: Mapping[str, Any], ends: Node) -> None:
        self._torch = torch
        self._weak: Any = import_module("torch.multiprocessing.reductions").StorageWeakRef
        self._ends = ends
        self._nodes: dict[int, tuple[Any, Node]] = {}
        """By storage; a weak reference keeps its number from being given to another."""
        self._bases: dict[str, Node] = {}
        self._narrow: dict[str, tuple[Any, Node]] = {}
        """Of values in a wider type: the type they come from, and what they were there."""
        self._recent: list[tuple[Any, Node]] = []
        self._final: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.count = 0
        self._inputs = [v for v in inputs.values() if self._is_plain(v)]
        for value in self._inputs:
            if self._key(value) not in self._nodes:
                self._set(value, self._base(f"input {len(self._nodes)}"))

    def through(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Do one operation, and note what it makes and of what."""
        name = operator_name(function)
        given = [t for t in tensors_in(self._torch, (args, kwargs)) if self._is_plain(t)]
        written = [t for t in _written(self._torch, function, args, kwargs) if self._is_plain(t)]
        unread = [id(t) for t in written if name == "copy_" or t is kwargs.get("out")]
        rewritten = {id(t) for t in written}
        operands = [self._operand(t, id(t) in rewritten) for t in given if id(t) not in unread]
        held = {self._key(t) for t in given}
        result = function(*args, **kwargs)
        made = [t for t in tensors_in(self._torch, result) if self._is_plain(t)]
        fresh = [*written, *(t for t in made if self._key(t) not in held)]
        if name in (*_FILLS, *_FILLED) or name.removesuffix("_like").removesuffix("_strided") in (
            _FILLS
        ):
            for one in fresh:
                self._write(one, _NOTHING)
        elif fresh:
            self.count += 1
            event = self._event(name, operands, kwargs)
            for index, one in enumerate(fresh):
                self._write(one, self._value(name, (*event, index), one, operands))
        return result

    def end(self, output: Any, wanted: Sequence[Node]) -> Node:
        """What an output consists of."""
        node = self._bases_of(self._read(output))
        for one in () if wanted and node == wanted[0] else wanted:
            final = self._final.get(next(iter(one))) if len(one) == 1 else None
            if final is not None and final.numel() == output.numel():
                flat = (t.reshape(-1) for t in (output, final))
                if same_values(self._torch, *flat):
                    return one
        return node

    def _event(
        self, name: str, operands: Sequence[_Operand], kwargs: Mapping[str, Any]
    ) -> tuple[str, str]:
        texts = [one.text for one in operands]
        if name in _PRODUCTS_AND_SUMS and len(operands) == 3:
            adds = kwargs.get("beta", 1) != 0 and bool((operands[0].value != 0).any())
            if not adds and kwargs.get("alpha", 1) == 1:
                name, texts = "mm", texts[1:]
        if name in _PRODUCTS:
            name = "mm"
        if name in _EITHER_WAY_ROUND:
            texts.sort()
        return name, _digest(name, texts)

    def _value(
        self, name: str, event: tuple[str, str, int], made: Any, operands: Sequence[_Operand]
    ) -> Node:
        """What a result is: one of the operands, an earlier value, or a new one."""
        if name in _JOINS:
            return frozenset().union(*(one.node for one in operands))
        for one in operands:
            if same_values(self._torch, made, one.value):
                return self._laid(made, one)
            if name in _CASTS and self._is_exact(made, one.value):
                return self._widened(made, one)
        if made.dtype.is_floating_point and made.numel() >= _FEWEST:
            for value, node in self._all_known():
                if layout_of(value) == layout_of(made) and same_values(self._torch, made, value):
                    return node
        node = self._base(_digest(*event, made.dtype, made.numel()))
        self.names.update(dict.fromkeys(node, event[0]))
        self._remember(made, node)
        return node

    def _laid(self, made: Any, source: _Operand) -> Node:
        """Of the same values: another where they lie in another order, and the first one again."""
        layout = layout_of(made)
        if layout == layout_of(source.value):
            return source.node
        for value, node in self._all_known():
            if layout_of(value) == layout and same_values(self._torch, made, value):
                return node
        return self._derived(source.node, "laid", layout_of(source.value), layout)

    def _all_known(self) -> list[tuple[Any, Node]]:
        return [*self._recent, *((value, self._read(value)) for value in self._inputs)]

    def _widened(self, made: Any, source: _Operand) -> Node:
        """Of a type that holds the same values: itself again after the way back."""
        for one in source.node:
            narrow = self._narrow.get(one)
            if narrow is not None and narrow[0] == made.dtype and len(source.node) == 1:
                return narrow[1]
        node = self._derived(source.node, "in", made.dtype)
        self._narrow.update(dict.fromkeys(node, (source.value.dtype, source.node)))
        return node

    def _is_exact(self, made: Any, value: Any) -> bool:
        if made.shape != value.shape or made.dtype.is_complex or value.dtype.is_complex:
            return False
        return same_values(self._torch, made.double(), value.double())

    def _remember(self, made: Any, node: Node) -> None:
        size = made.numel() * made.element_size()
        if self._ends & node:
            self._final.update(dict.fromkeys(node, made.clone()))
        if size <= _REMEMBERED_BYTES // _REMEMBERED:
            self._recent = [*self._recent[1 - _REMEMBERED :], (made.clone(), node)]

    def _operand(self, tensor: Any, is_written: bool) -> _Operand:
        node = self._read(tensor)
        text = f"{sorted(node)} {tensor.dtype} {layout_of(tensor)}"
        return _Operand(tensor.clone() if is_written else tensor, node, text)

    def _read(self, tensor: Any) -> Node:
        """What a tensor shows of its memory."""
        if not self._is_plain(tensor):
            return _NOTHING
        node = self._known(tensor)
        reach, size = reach_of(tensor), tensor.element_size()
        if tensor.storage_offset() == 0 and reach * size == tensor.untyped_storage().nbytes():
            return node
        whole = layout_of(tensor) if reach != tensor.numel() else ()
        return self._derived(node, "part", tensor.storage_offset() * size, reach * size, whole)

    def _known(self, tensor: Any) -> Node:
        """What its memory holds; of memory from before the call, an input's copy or something."""
        found = self._nodes.get(self._key(tensor))
        if found is not None:
            return found[1]
        for value in self._inputs:
            if value.numel() >= _FEWEST and same_values(self._torch, tensor, value):
                self._set(tensor, self._read(value))
                return self._nodes[self._key(tensor)][1]
        for value, node in self._recent:
            if value.numel() >= _FEWEST and same_values(self._torch, tensor, value):
                self._set(tensor, node)
                return node
        self._set(tensor, self._base(f"kept {tuple(tensor.shape)} {_checksum(tensor)}"))
        return self._nodes[self._key(tensor)][1]

    def _write(self, tensor: Any, node: Node) -> None:
        key = self._key(tensor)
        if tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes():
            node = node | (self._nodes[key][1] if key in self._nodes else _NOTHING)
        self._set(tensor, node)

    def _set(self, tensor: Any, node: Node) -> None:
        self._nodes[self._key(tensor)] = (self._weak(tensor.untyped_storage()), node)

    def _base(self, name: str) -> Node:
        node = frozenset((name,))
        self._bases[name] = node
        return node

    def _derived(self, node: Node, *how: Any) -> Node:
        if not node:
            return node
        name = _digest(*how, sorted(node))
        self._bases[name] = self._bases_of(node)
        return frozenset((name,))

    def _bases_of(self, node: Node) -> Node:
        return frozenset().union(*(self._bases[one] for one in node))

    def _key(self, tensor: Any) -> int:
        return int(tensor.untyped_storage()._cdata)

    def _is_plain(self, one: Any) -> bool:
        return isinstance(one, self._torch.Tensor) and one.layout is self._torch.strided


def _written(torch: Any, function: Any, args: Any, kwargs: Any) -> list[Any]:
    """Arguments that an operation writes into."""
    found = []
    for index, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            one = args[index] if index < len(args) else kwargs.get(argument.name)
            found += list(tensors_in(torch, one))
    return found


def _checksum(tensor: Any) -> str:
    flat = tensor.detach().reshape(-1)
    if flat.dtype.is_complex:
        flat = flat.abs()
    return f"{tensor.dtype} {float(flat.double().nan_to_num().sum())}"


def _digest(*parts: Any) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
