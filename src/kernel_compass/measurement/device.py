"""What timing needs from a GPU: one contract, kept by PyTorch's CUDA and by a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernel_compass.records.environment import Environment

Call = Callable[[], object]
"""Enqueues work on the current stream and returns."""


class NotCapturable(Exception):
    """A callable cannot be captured in a CUDA graph; the text says why."""


@dataclass(frozen=True)
class ClockReading:
    """The clocks at one moment of a measurement."""

    sm_mhz: float
    memory_mhz: float
    throttle_reasons: tuple[str, ...] = ()


class TimingDevice(Protocol):
    """One GPU with a queue of its own, on which everything below is enqueued."""

    @property
    def l2_bytes(self) -> int:
        """Nominal L2 capacity."""

    def environment(self) -> Environment:
        """What goes beside every number."""

    def free_bytes(self) -> int:
        """Device memory that can still be allocated."""

    def bytes_of(self, operand: Any) -> int:
        """Bytes of an operand's elements."""

    def address_range(self, operand: Any) -> tuple[int, int]:
        """First byte, and the byte after the last one, that an operand can touch."""

    def clone(self, operand: Any) -> Any:
        """The same values and layout elsewhere in memory."""

    def is_constant(self, operand: Any) -> bool:
        """Whether every element has one value; False for what is no array of numbers."""

    def run(self, call: Call) -> None:
        """Call once and wait.

        Raises:
            MeasurementError: it raised (`callable_failed`) or ran out of memory.
        """

    def capture(self, calls: Sequence[Call]) -> Call:
        """One CUDA graph of these calls in order, as a call that replays it.

        Raises:
            NotCapturable: a call does what capture forbids.
            MeasurementError: a call raised, or ran out of memory.
        """

    def elapsed_us(self, work: Call, before: Call | None = None, primed: bool = True) -> float:
        """GPU time of some work between two events.

        Args:
            work: enqueues what is timed.
            before: enqueued ahead of the first event, to leave the state that `work` should find.
            primed: keep the GPU busy until all is enqueued, so that no launch is waited for.
        """

    def unprimed(self) -> int:
        """Times taken so far for which the GPU could not be kept busy until all was enqueued."""

    def flush(self) -> Call:
        """A call that drives everything else out of L2, by reading."""

    def clocks(self) -> ClockReading | None:
        """The clocks now, where the driver tells."""

    def carve_out(self) -> tuple[int, int]:
        """Bytes of L2 set aside for persisting accesses: when this device was opened, and now."""

    def memory_pin_tbs(self) -> float | None:
        """What the memory's pins can carry at most, TB/s; None where the driver does not say."""

    def leaves_work_on_side_streams(self, call: Call) -> bool | None:
        """Whether the call starts work that the queue does not wait for; None = cannot be seen."""

    def seed(self, number: int) -> None:
        """Start the random numbers of the device anew."""

    def scatter(self, seed: int) -> object:
        """Occupy memory in a random pattern while the result is held: what is allocated then
        lies elsewhere than in another process.
        """

    def release(self) -> None:
        """Give unused memory back."""
