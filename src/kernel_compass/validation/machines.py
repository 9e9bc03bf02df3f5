"""The devices that a judge works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

POISON = 0xFF


class CpuMachine:
    """The processor: has no streams, and reuses memory that was freed last."""

    kind = "cpu"

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def synchronize(self) -> None:
        """Calls are done when they return."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Leave freed blocks of NaN for the allocator to hand out again."""
        for size in sizes:
            if size:
                blocks = [self._torch.full((size,), POISON, dtype=self._torch.uint8) for _ in "ab"]
                del blocks

    def carve_out_bytes(self) -> int | None:
        """It has no L2 that can be set aside."""
        return None

    def leaves_side_streams(self, _call: Callable[[], Any]) -> bool | None:
        """There are none."""
        return False
