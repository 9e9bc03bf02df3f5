"""Strategies that learn nothing: `exhaustive` in the space's own order, `random` in a drawn one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from kernel_compass.optimizer.search.progress import Progress
from kernel_compass.records.contracts import Config


class FixedOrder:
    """All points, one after the other."""

    def __init__(self, name: str, configs: Sequence[Config], shuffled_by: int | None) -> None:
        self.name = name
        self._progress = Progress(configs)
        order = list(self._progress.distinct)
        if shuffled_by is not None:
            Random(shuffled_by).shuffle(order)
        self._rest: Iterator[int] = iter(order)

    def ask(self, count: int) -> Sequence[int]:
        """The next ones that are free; see `Strategy`."""
        found: list[int] = []
        wanted = self._progress.wanted(count)
        while len(found) < wanted:
            index = next(self._rest)
            if self._progress.is_free(index):
                found.append(self._progress.take(index))
        return found

    def tell(self, index: int, time_us: float | None) -> None:
        """See `Strategy`."""
        self._progress.tell(index, time_us)
