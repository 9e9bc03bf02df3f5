"""Linear layers with the same input computed as one: their weights lie behind one another, packed.

In compiled code it is seen in the graph which products share their input (`joined_graph.py`). In
eager code it is learned: products of the right sizes that followed one another on the same tensor,
unchanged between them, are taken to do so again; the first of them then computes all, and the
others get their columns as long as the tensor, its version and the stream are the same. torch
counts no version where a Triton kernel or a graph's replay writes into a tensor: where one does so
between two products of one input, they may not be computed as one, and the step's outputs say so.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import ref

from kernel_compass.api.actions.constant_weights import MOST_PACKINGS, Weights
from kernel_compass.api.actions.weight_memory import capturing, memory_of, plain_dispatch, weak
from kernel_compass.api.dispatch import Handle, Table
from kernel_compass.errors import KernelCompassError, shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Tensor
from kernel_compass.records.dispatch import DispatchEntry, GpuModel, TokenRange

_KEPT: list[Handle] = []
"""Packed weights that a CUDA graph of the program's own reads: it may be replayed at any time."""


@dataclass(frozen=True)
class Shared:
    """Products of one input that an entry computes as one."""

    entry: DispatchEntry
    """Of all their columns."""
    parts: tuple[int, ...]
    """Columns of each, in the order in which they are called."""

    @property
    def tokens(self) -> tuple[TokenRange, ...]:
        """That it is for."""
        return self.entry.pattern.tokens


@dataclass
class Joined:
    """Weights that are computed as one."""

    storages: list[Any]
    """Weak."""
    versions: list[int]
    handle: Handle | None = None
    packings: int = 0
    exposed: bool = False
    beside: Any = None
    """Weak: the weights behind one another, where what is packed reads them as they are."""
    left_alone: bool = False
    kept: bool = False


@dataclass
class _Turn:
    """The products of one input, as they come."""

    input: Any = None
    """Weak."""
    state: tuple[Any, ...] = ()
    """Its version, the stream, whether a graph is captured."""
    seen: list[Any] = field(default_factory=list)
    """Weights, weak."""
    waiting: list[tuple[Tensor, int, Tensor]] = field(default_factory=list)
    """Weights with their versions, and their columns of what was computed for all."""

    def holds(self, a: Tensor, state: tuple[Any, ...], weight: Tensor) -> bool:
        """Whether a product belongs to it: of the same input, and not come before."""
        if self.input is None or self.input() is not a or self.state != state:
            return False
        return all(one() is not weight for one in self.seen)

    def taken(self, weight: Tensor) -> Tensor | None:
        """What was computed for a weight, once; `None` = nothing was."""
        for at, (one, version, found) in enumerate(self.waiting):
            if one is weight and version == weight._version:
                del self.waiting[at]
                return found
        return None


class SharedInputs:
    """The joined weights of one application.

    Args:
        groups: what is computed as one.
        table: of the groups' entries.
        weights: says which tensors are constant, and moves originals.
        here: the machine; asked at the first product.
    """

    def __init__(
        self,
        groups: Sequence[Shared],
        table: Table,
        weights: Weights,
        here: Callable[[], GpuModel],
    ) -> None:
        self._groups, self._here = tuple(groups), here
        self._table, self._weights = table, weights
        self._parts = {(one.entry.pattern.reduction, n) for one in groups for n in one.parts}
        self._joined: dict[tuple[Any, ...], Joined] = {}
        self._orders: dict[int, tuple[Any, ...]] = {}
        """`id` of the first weight of a group -> all of them, weak."""
        self._local = threading.local()
        self._lock = threading.RLock()
        self.uses = 0
        self.reasons: dict[str, str] = {}

    @cached_property
    def groups(self) -> tuple[Shared, ...]:
        """Those that were measured on this machine."""
        here = self._here()
        return tuple(one for one in self._groups if one.entry.gpu == here)

    @property
    def handles(self) -> list[Handle]:
        """Of all packed weights."""
        return [one.handle for one in self._joined.values() if one.handle is not None]

    @property
    def added_bytes(self) -> int:
        """Memory beside the originals."""
        total = sum(one.added_bytes for one in self.handles)
        for one in self._joined.values():
            if one.handle is not None and one.beside is not None and not one.beside.expired():
                total += one.handle.original_bytes
        return total

    def followed(self, a: Tensor, weight: Tensor) -> Tensor | None:
        """In eager code: the product of a linear layer's weight that is computed with others;
        `None` = it is not."""
        if (weight.shape[1], weight.shape[0]) not in self._parts or a.is_inference():
            return None
        if weight.is_inference():
            return None
        turn, state = self._turn(), _state(a)
        if not turn.holds(a, state, weight):
            self._learn(turn)
            turn = self._local.turn = _Turn(ref(a), state)
            self._begin(turn, a, weight)
        turn.seen.append(ref(weight))
        return turn.taken(weight)

    def product(self, a: Tensor, weights: Sequence[Tensor]) -> Tensor | None:
        """All products of one input behind one another, `(..., sum of N)`; `None` = it cannot be
        computed so."""
        found = self._of(weights)
        if found is None or found.left_alone or any(one.is_inference() for one in weights):
            return None
        versions = [one._version for one in weights]
        if found.handle is None or found.exposed or versions != found.versions:
            with self._lock:
                self._bring_up(found, weights, versions)
        if found.handle is None:
            return None
        if not found.kept and capturing(a):
            found.kept = True
            _KEPT.append(found.handle)
        out = found.handle.computed(a)
        if out is not None:
            self.uses += 1
        return out

    def matching(self, columns: Sequence[int], reduction: int, tokens: Any) -> list[int] | None:
        """Where products in this order, all of one input, make up a group; `None` = nowhere."""
        for group in self.groups:
            pattern, width = group.entry.pattern, len(group.parts)
            if pattern.reduction != reduction:
                continue
            if not any(one.low <= tokens <= one.high for one in group.tokens):
                continue
            for first in range(len(columns) - width + 1):
                if tuple(columns[first : first + width]) == group.parts:
                    return list(range(first, first + width))
        return None

    def expose(self, tensor: Tensor) -> None:
        """The program gets a door to a weight through which changes are not counted."""
        self._turn().waiting.clear()
        memory = memory_of(tensor)
        for key, one in tuple(self._joined.items()):
            if any(place[0] == memory for place in key):
                one.exposed = True

    def close(self) -> None:
        """Forget all."""
        with self._lock:
            self._joined.clear()
            self._orders.clear()
            self._local = threading.local()

    def _turn(self) -> _Turn:
        found = getattr(self._local, "turn", None)
        if found is None:
            found = self._local.turn = _Turn()
        return found

    def _begin(self, turn: _Turn, a: Tensor, weight: Tensor) -> None:
        """Compute all products of an input at the first of them, where they are known."""
        known = [one() for one in self._orders.get(id(weight), ())]
        if not known or known[0] is not weight or any(one is None for one in known):
            return
        tokens = a.numel() // a.shape[-1] if a.shape[-1] else 0
        if self.matching([one.shape[0] for one in known], a.shape[-1], tokens) is None:
            return
        whole = self.product(a, known)
        if whole is not None:
            columns = torch_library().split(whole, [one.shape[0] for one in known], -1)
            turn.waiting = [
                (one, one._version, part.contiguous())
                for one, part in zip(known, columns, strict=True)
            ]

    def _learn(self, turn: _Turn) -> None:
        """Which weights followed one another on an input that is now done with."""
        weights = [one() for one in turn.seen]
        if turn.waiting:  # not all were asked for: they do not belong together
            self._orders.pop(id(turn.waiting[0][0]), None)
            self._orders.pop(id(weights[0]) if weights else 0, None)
            return
        if len(weights) < 2 or any(one is None for one in weights):
            return
        columns = [one.shape[0] for one in weights]
        for group in self.groups:
            found = self.matching(columns, weights[0].shape[1], group.tokens[0].low)
            if found is not None:
                self._orders[id(weights[found[0]])] = tuple(turn.seen[at] for at in found)
                return

    def _of(self, weights: Sequence[Tensor]) -> Joined | None:
        key = tuple(
            (memory_of(one), one.storage_offset(), tuple(one.shape), one.stride(), one.dtype)
            for one in weights
        )
        with self._lock:
            found = self._joined.get(key)
            if found is None:
                self._purge()
                if len({one[-1] for one in key}) != 1:
                    return None
                constant = all(self._weights.constant(one) for one in weights)
                versions = [one._version if constant else -1 for one in weights]
                found = self._joined[key] = Joined([weak(one) for one in weights], versions)
            return found

    def _bring_up(self, found: Joined, weights: Sequence[Tensor], versions: list[int]) -> None:
        """Pack, or pack again, unless nothing may be packed just now."""
        if versions != found.versions:  # changed, or seen for the first time
            found.versions, found.handle = versions, None
            return
        if capturing(weights[0]) or not plain_dispatch():
            if found.exposed:
                found.handle = None
            return
        if found.packings >= MOST_PACKINGS:
            found.left_alone, found.handle = True, None
            why = f"weights {_text(weights)} keep changing: {found.packings} packings"
            warnings.warn(
                f"kernel-compass: {why}, left to torch from now on.", RuntimeWarning, stacklevel=2
            )
            return
        self._pack(found, weights)

    def _pack(self, found: Joined, weights: Sequence[Tensor]) -> None:
        torch = torch_library()
        with (
            torch._C.DisableTorchFunction(),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            if self._weights.freed is not None:
                for one in weights:
                    self._weights.freed.restore(one)
            try:
                whole = torch.cat([one.detach() for one in weights])
                found.handle = self._table.prepare(whole, False)
            except KernelCompassError as error:
                found.left_alone = True
                self.reasons[_text(weights)] = shortened(error.found, 400)
                return
            except torch.OutOfMemoryError:
                found.left_alone = True
                self.reasons[_text(weights)] = "there is no memory for them beside the originals"
                return
            found.beside = weak(whole)
            found.packings += 1
            found.exposed = False
            if self._weights.freed is not None:
                for one in weights:
                    self._weights.freed.free(one)

    def _purge(self) -> None:
        """Packed weights go with the originals."""
        gone = [key for key, one in self._joined.items() if any(s.expired() for s in one.storages)]
        for key in gone:
            del self._joined[key]
        dead = [
            key for key, order in self._orders.items() if any(weight() is None for weight in order)
        ]
        for number in dead:
            del self._orders[number]


def _state(a: Tensor) -> tuple[Any, ...]:
    """What has to be the same for two products of an input to be computed at once."""
    if not a.is_cuda:
        return (a._version,)
    return a._version, torch_library().cuda.current_stream(a.device).cuda_stream, capturing(a)


def _text(weights: Iterable[Tensor]) -> str:
    return " + ".join(str(tuple(one.shape)) for one in weights)
