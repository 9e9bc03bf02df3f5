"""What was asked and told: the part that all strategies share."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from kernel_compass.errors import UsageError
from kernel_compass.records.contracts import Config, ConfigKey, config_key


class Progress:
    """Which points are left, which wait for an answer, and what the others took.

    Of equal configurations only the first is ever given; what is told of another counts for it.
    Nothing here depends on the order of questions, so whoever tells again what was told before is
    where he was.
    """

    def __init__(self, configs: Sequence[Config]) -> None:
        first: dict[ConfigKey, int] = {}
        self._same = [first.setdefault(config_key(c), i) for i, c in enumerate(configs)]
        self.distinct = tuple(i for i, same in enumerate(self._same) if i == same)
        """Indices of configurations that differ."""
        self.times: dict[int, float | None] = {}
        """What was told, in order of the first telling; `None` = it failed."""
        self.pending: dict[int, None] = {}
        """Asked and not told, in order."""

    def __len__(self) -> int:
        return len(self._same)

    @property
    def asked(self) -> int:
        """How many points are no longer free."""
        return len(self.times) + len(self.pending)

    @property
    def left(self) -> int:
        """How many points were never asked."""
        return len(self.distinct) - self.asked

    def is_free(self, index: int) -> bool:
        """Whether it may be asked."""
        return self._same[index] == index and index not in self.times and index not in self.pending

    def take(self, index: int) -> int:
        """Note that it is asked now."""
        self.pending[index] = None
        return index

    def wanted(self, count: int) -> int:
        """How many of the points that were asked for there are.

        Raises:
            UsageError: a negative number was asked for.
        """
        if count < 0:
            raise UsageError(f"{count} points were asked for.", "Ask for 0 or more.")
        return min(count, self.left)

    def tell(self, index: int, time_us: float | None) -> int:
        """Note what was measured; of a point that was told before, the newer time counts.

        Returns:
            The index of the first configuration that equals this one.

        Raises:
            UsageError: there is no such point, or the time is no positive number.
        """
        if not 0 <= index < len(self):
            raise UsageError(
                f"Point {index} was told of a space of {len(self)}.",
                "Tell an index that was asked.",
            )
        if time_us is not None and not (isfinite(time_us) and time_us > 0):
            raise UsageError(
                f"Point {index} is said to take {time_us} us.",
                "Tell a positive time, or None where there is none.",
            )
        same = self._same[index]
        self.pending.pop(same, None)
        self.times[same] = time_us
        return same
