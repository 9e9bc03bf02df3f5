"""A GPU without a GPU: replays cost what a small model of launches and L2 says.

The measurer of the tests and of the loop's dry runs. Whole operands live in an LRU cache of the
effective L2 capacity; a launch costs a fixed time, plus its bytes over the bandwidth of where they
lie, plus noise; a replay costs a fixed time of its own.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.device import Call, ClockReading, NotCapturable
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.units import MIB

_addresses = count(start=1 << 20, step=1 << 40)


@dataclass(frozen=True)
class SimulatedOperand:
    """A buffer of some bytes."""

    bytes: int
    constant: bool = False
    address: int = field(default_factory=lambda: next(_addresses))


@dataclass
class SimulatedDevice:
    """One GPU whose truth is known."""

    l2_bytes: int = 60 * MIB
    c_eff_bytes: int = 46 * MIB
    launch_us: float = 1.0
    """Fixed cost of a launch in a graph."""
    issue_us: float = 12.0
    """What the CPU needs to issue a launch."""
    replay_us: float = 9.0
    """A replay's own cost."""
    l2_tbs: float = 6.4
    dram_tbs: float = 4.4
    noise: float = 0.0
    """Relative standard deviation of a replay's time."""
    memory_bytes: int = 128 << 30
    clock_mhz: Sequence[float] = (1980.0,)
    throttle: tuple[str, ...] = ()
    carve_out_bytes: tuple[int, int] = (0, 0)
    pin_tbs: float | None = 4.9
    side_stream: bool | None = False
    noise_seed: int = 0

    def __post_init__(self) -> None:
        self._cache: OrderedDict[int, int] = OrderedDict()
        self._cached_bytes = 0
        self._random = random.Random(self.noise_seed)
        self._now_us = 0.0
        self._launches = 0
        self._readings = 0
        self._capturing: list[tuple[tuple[SimulatedOperand, ...], float]] | None = None
        self._flush = SimulatedOperand(4 * self.l2_bytes)
        self._allocated = 0

    def launch(self, *operands: SimulatedOperand, extra_us: float = 0.0) -> None:
        """A kernel that touches these operands once."""
        if self._capturing is not None:
            self._capturing.append((operands, extra_us))
            return
        self._launches += 1
        self._now_us += self._launched(operands, extra_us)

    def wait_for_gpu(self) -> None:
        """What `.item()` does: forbidden while capturing."""
        if self._capturing is not None:
            raise NotCapturable("RuntimeError: operation not permitted when stream is capturing")

    def environment(self) -> Environment:
        """A device named as what it is."""
        return Environment(Device("simulated GPU", None, 132, self.l2_bytes))

    def free_bytes(self) -> int:
        """What clones have left."""
        return self.memory_bytes - self._allocated

    def bytes_of(self, operand: object) -> int:
        """Bytes of an operand; 0 for anything else."""
        return operand.bytes if isinstance(operand, SimulatedOperand) else 0

    def address_range(self, operand: SimulatedOperand) -> tuple[int, int]:
        """Where it lies."""
        return operand.address, operand.address + operand.bytes

    def clone(self, operand: SimulatedOperand) -> SimulatedOperand:
        """Another buffer of its size."""
        self._allocated += operand.bytes
        return SimulatedOperand(operand.bytes, operand.constant)

    def is_constant(self, operand: object) -> bool:
        """As the operand was made."""
        return isinstance(operand, SimulatedOperand) and operand.constant

    def run(self, call: Call) -> None:
        """Call once."""
        try:
            call()
        except (MeasurementError, NotCapturable):
            raise
        except Exception as error:
            found = f"The callable raised {type(error).__name__}: {error}"
            raise MeasurementError(MeasurementCause.CALLABLE_FAILED, found, "") from error

    def capture(self, calls: Sequence[Call]) -> Call:
        """The launches of these calls, as a call that repeats them."""
        self._capturing = []
        try:
            for call in calls:
                call()
            recorded = _Replay(tuple(self._capturing))
        except NotCapturable:
            raise
        except Exception as error:  # as PyTorch's capture does: a fallback, with the reason
            raise NotCapturable(f"{type(error).__name__}: {error}") from None
        finally:
            self._capturing = None

        def replay() -> None:
            self._now_us += self.replay_us + self._replayed(recorded)
            self._launches += len(recorded.launches)

        return replay

    def elapsed_us(self, work: Call, before: Call | None = None, primed: bool = True) -> float:
        """Simulated time; unprimed work takes at least what the CPU needs to issue it."""
        if before is not None:
            self.run(before)
        start, launches = self._now_us, self._launches
        self.run(work)
        spent = self._now_us - start
        if not primed:
            spent = max(spent, (self._launches - launches) * self.issue_us)
        return spent * self._random.gauss(1.0, self.noise)

    def unprimed(self) -> int:
        """None ever."""
        return 0

    def flush(self) -> Call:
        """Touch a buffer of four times L2."""
        return lambda: self.launch(self._flush)

    def clocks(self) -> ClockReading:
        """The clocks in the order given, the last for ever."""
        mhz = self.clock_mhz[min(self._readings, len(self.clock_mhz) - 1)]
        self._readings += 1
        return ClockReading(mhz, 3201.0, self.throttle)

    def carve_out(self) -> tuple[int, int]:
        """As set."""
        return self.carve_out_bytes

    def memory_pin_tbs(self) -> float | None:
        """As set."""
        return self.pin_tbs

    def leaves_work_on_side_streams(self, call: Call) -> bool | None:
        """As set."""
        call()
        return self.side_stream

    def seed(self, number: int) -> None:
        """Another noise."""
        self._random = random.Random(number)

    def scatter(self, seed: int) -> object:
        """Nothing: addresses do not matter here."""
        return seed

    def release(self) -> None:
        """Forget the clones."""
        self._allocated = 0

    def _launched(self, operands: Sequence[SimulatedOperand], extra_us: float) -> float:
        return self.launch_us + extra_us + sum(map(self._touch, operands))

    def _replayed(self, recorded: _Replay) -> float:
        """What its launches take; from the same cache, what they took before."""
        before = tuple(self._cache)
        if before not in recorded.known:
            found = sum(self._launched(*one) for one in recorded.launches)
            recorded.known[before] = (found, tuple(self._cache.items()))
            return found
        found, after = recorded.known[before]
        self._cache = OrderedDict(after)
        self._cached_bytes = sum(self._cache.values())
        return found

    def _touch(self, operand: SimulatedOperand) -> float:
        hit = self._cache.pop(operand.address, None)
        self._cached_bytes -= hit or 0
        if operand.bytes > self.c_eff_bytes:
            self._cache.clear()
            self._cached_bytes = 0
        else:
            self._cache[operand.address] = operand.bytes
            self._cached_bytes += operand.bytes
        while self._cached_bytes > self.c_eff_bytes:
            self._cached_bytes -= self._cache.popitem(last=False)[1]
        return operand.bytes / (self.l2_tbs if hit is not None else self.dram_tbs) / 1e6


@dataclass
class _Replay:
    """Launches that were captured, and what became of them by what lay in the cache before."""

    launches: tuple[tuple[tuple[SimulatedOperand, ...], float], ...]
    known: dict[tuple[int, ...], tuple[float, tuple[tuple[int, int], ...]]] = field(
        default_factory=dict
    )
