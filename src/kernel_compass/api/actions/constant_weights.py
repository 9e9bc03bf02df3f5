"""Weights that products are computed with, known again at every call, packed once.

A weight is known by the memory that it lies in and how it lies there, held by weak references: so
`w.t()` at every call is the same weight, and an address that was given away and comes back is not.
It is packed when it is a parameter or buffer, or was the same at two calls: torch counts changes
in place (`_version`). What is changed through `weight.data` is not counted: where the program asks
for `.data`, its bytes are compared before the packed weight is used again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from weakref import ref

from kernel_compass.api.actions.freed_originals import FreedOriginals
from kernel_compass.api.actions.weight_memory import (
    capturing,
    digest,
    memory_of,
    plain_dispatch,
    weak,
)
from kernel_compass.api.dispatch import Handle, Table
from kernel_compass.errors import KernelCompassError, shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Tensor

MOST_PACKINGS = 3
"""How often a weight that changes is packed anew; then it is left alone."""
MOST_LOOKS = 8
"""How often its bytes are compared because the program asked for `.data`."""
_KEPT: list[Handle] = []
"""Packed weights that a CUDA graph of the program's own reads: it may be replayed at any time."""


@dataclass
class Known:
    """A weight that was seen."""

    storage: Any
    """Weak."""
    version: int
    handle: Handle | None = None
    packings: int = 0
    looks: int = 0
    exposed: bool = False
    """Whether `.data` was asked for since it was packed or compared."""
    digest: int | None = None
    left_alone: str | None = None
    kept: bool = False


class Weights:
    """The packed weights of one application.

    Args:
        table: what products are computed by.
        constants: tensors that are constant from the first call on: parameters and buffers.
        free_originals: whether originals are moved to host memory.
        only: tensors whose products alone are replaced; `None` = all.
    """

    def __init__(
        self,
        table: Table,
        constants: Iterable[Tensor] = (),
        free_originals: bool = False,
        only: Iterable[Tensor] | None = None,
    ) -> None:
        self._table = table
        self._constants = {memory_of(one): weak(one) for one in constants}
        self._only = None if only is None else {memory_of(one): weak(one) for one in only}
        self._known: dict[tuple[Any, ...], Known] = {}
        self._quick: dict[int, tuple[Any, int, Known]] = {}
        self._lock = threading.RLock()
        self.freed = FreedOriginals() if free_originals else None
        self.uses = 0
        self.reasons: dict[str, str] = {}
        """Product -> why torch computes it."""

    @property
    def added_bytes(self) -> int:
        """Memory that packed weights take beside the originals."""
        self._purge()
        return sum(one.handle.added_bytes for one in self._known.values() if one.handle)

    @property
    def handles(self) -> list[Handle]:
        """Of all packed weights that are still there."""
        self._purge()
        return [one.handle for one in self._known.values() if one.handle is not None]

    def handle(self, weight: Tensor, turned: bool) -> Handle | None:
        """What computes with a weight; `None` = torch does.

        Args:
            weight: as the function got it.
            turned: whether it is `(K, N)`, a linear layer's other way round.
        """
        known = self._find(weight, turned)
        if known is None or known.left_alone is not None:
            return None
        if known.handle is None or known.exposed or known.version != weight._version:
            with self._lock:
                self._bring_up(known, weight, turned)
        if known.handle is not None and weight.is_cuda and not known.kept and capturing(weight):
            known.kept = True
            _KEPT.append(known.handle)
        return known.handle

    def expose(self, tensor: Tensor) -> None:
        """The program gets a door to a weight through which changes are not counted."""
        memory = memory_of(tensor)
        for key, known in tuple(self._known.items()):
            if key[0] == memory:
                known.exposed = True

    def constant(self, weight: Tensor) -> bool:
        """Whether it is known to be constant, seen for the first time: a parameter or buffer."""
        parameter = torch_library().nn.Parameter
        base = weight._base
        is_one = isinstance(weight, parameter) or isinstance(base, parameter)
        return is_one or memory_of(weight) in self._constants

    def close(self) -> None:
        """Forget all; originals are where they were, to the bit."""
        with self._lock:
            if self.freed is not None:
                self.freed.close()
            self._known.clear()
            self._quick.clear()

    def _find(self, weight: Tensor, turned: bool) -> Known | None:
        quick = self._quick.get(id(weight))
        memory = memory_of(weight)
        if quick is not None and quick[0]() is weight and quick[1] == memory and not turned:
            known = quick[2]
            if known.version == weight._version:
                return known
        if self._only is not None and memory not in self._only:
            return None
        if weight.is_inference():
            self.reasons[str(tuple(weight.shape))] = "it was made in inference mode: no versions"
            return None
        layout = (weight.storage_offset(), tuple(weight.shape), weight.stride(), weight.dtype)
        key = (memory, *layout, turned)
        with self._lock:
            return self._known_as(key, weight, turned)

    def _known_as(self, key: tuple[Any, ...], weight: Tensor, turned: bool) -> Known:
        known = self._known.get(key)
        if known is None:
            self._purge()
            version = weight._version
            if not self.constant(weight):
                version = -1  # no version yet: it has to be seen a second time
            known = self._known[key] = Known(weak(weight), version)
        if not turned:
            self._quick[id(weight)] = (ref(weight), key[0], known)
        return known

    def _bring_up(self, known: Known, weight: Tensor, turned: bool) -> None:
        """Pack, or pack again, or find that what is packed still holds."""
        if known.version != weight._version:  # changed, or seen for the first time
            first = known.version == -1
            known.version, known.handle = weight._version, None
            if not first and self.freed is not None:
                self.freed.never(weight)
            return  # this call is torch's; packed when it is the same at the next
        if capturing(weight) or not plain_dispatch():
            return
        if known.handle is not None:
            self._look(known, weight)
            return
        if known.packings >= MOST_PACKINGS:
            why = f"a weight {tuple(weight.shape)} keeps changing: {known.packings} packings"
            self._leave(known, f"{why}, left to torch from now on")
            return
        self._pack(known, weight, turned)

    def _look(self, known: Known, weight: Tensor) -> None:
        if known.looks >= MOST_LOOKS:
            found = f"the program asks for .data of a weight {tuple(weight.shape)} again and again"
            self._leave(known, f"{found}: changes cannot be seen, left to torch from now on")
            return
        known.looks += 1
        known.exposed = False
        if self.freed is not None:
            self.freed.restore(weight)
        if digest(weight) != known.digest:
            known.handle = None  # packed at the next call

    def _pack(self, known: Known, weight: Tensor, turned: bool) -> None:
        torch = torch_library()
        with ExitStack() as stack:
            stack.enter_context(torch._C.DisableTorchFunction())
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            if self.freed is not None:
                self.freed.restore(weight)
            given = weight.detach()
            try:
                known.handle = self._table.prepare(given.t() if turned else given, False)
            except KernelCompassError as error:
                known.left_alone = error.found
                self.reasons[str(tuple(weight.shape))] = error.found
                return
            known.packings += 1
            known.exposed = False
            known.digest = digest(given)
            if self.freed is not None:
                self.freed.free(weight)

    def _leave(self, known: Known, why: str) -> None:
        known.left_alone, known.handle = why, None
        warnings.warn(f"kernel-compass: {shortened(why, 400)}.", RuntimeWarning, stacklevel=2)

    def _purge(self) -> None:
        """Packed weights go with the originals."""
        with self._lock:
            gone = [key for key, one in self._known.items() if one.storage.expired()]
            for key in gone:
                del self._known[key]
            for number in [n for n, one in self._quick.items() if one[0]() is None]:
                del self._quick[number]
