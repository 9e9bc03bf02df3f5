"""What is expected, kept so that nothing a candidate can reach while it runs holds the answer.

Frames, the garbage collector's list and freed memory show every tensor of a process. Between two
comparisons the bits are therefore combined with random ones. Code that knows this module can undo
it: that is beyond a judge in the same process.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Sealed:
    """An object whose tensors are unreadable until it is opened.

    Args:
        torch: the module.
        value: anything that can be copied; it is not kept.
    """

    def __init__(self, torch: Any, value: Any) -> None:
        self._torch = torch
        self._key = secrets.randbits(62)
        memo: dict[int, Any] = {}
        self._value = copy.deepcopy(value, memo)
        storages = {}
        for one in memo.values():
            if type(one) is torch.Tensor and one.layout is torch.strided and one.numel():
                storage = one.untyped_storage()
                storages[storage.data_ptr()] = storage
        self._storages = list(storages.values())
        self._turn()

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The object, readable within the block."""
        self._turn()
        try:
            yield self._value
        finally:
            self._turn()

    def _turn(self) -> None:
        torch = self._torch
        for index, storage in enumerate(self._storages):
            size, device = storage.nbytes(), storage.device
            held = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
            generator = torch.Generator(device).manual_seed(self._key + index)
            words = torch.empty(-(-size // 8), dtype=torch.int64, device=device)
            words.random_(generator=generator)
            held.bitwise_xor_(words.view(torch.uint8)[:size])
