"""The streaming kernel and torch as `StreamingFloors` meets them, on the simulated GPU."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.measurement.simulated import SimulatedDevice


@dataclass(frozen=True)
class FakeTensor:
    """Elements of a size at an address."""

    address: int
    count: int
    size: int = 4

    @property
    def bytes(self):
        return self.count * self.size

    def numel(self):
        return self.count

    def __getitem__(self, part):
        start, stop, _ = part.indices(self.count)
        return FakeTensor(self.address + start * self.size, stop - start, self.size)


class OutOfMemoryError(RuntimeError):
    """As torch's."""


class FakeTorch:
    int32, int16 = "int32", "int16"
    OutOfMemoryError = OutOfMemoryError
    allocated = 0
    most_bytes = 1 << 40
    """Of one tensor."""

    def randint(self, _low, _high, shape, dtype, device):
        return self._new(shape[0], 4)

    def empty(self, count, dtype, device):
        return self._new(count, 2)

    def _new(self, count, size):
        if count * size > self.most_bytes:
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {count * size} bytes")
        self.allocated += 1
        return FakeTensor(self.allocated << 44, count, size)


class FloorDevice(SimulatedDevice):
    """The simulated GPU as `StreamingFloors` meets it."""

    index = 0

    def __init__(self):
        super().__init__()
        self.torch = FakeTorch()

    def bytes_of(self, operand):
        return operand.bytes if isinstance(operand, FakeTensor) else super().bytes_of(operand)

    def address_range(self, operand):
        return operand.address, operand.address + operand.bytes


class FakeTiles:
    """Slower with every program, so that the largest tile is the best."""

    def __init__(self, device):
        self.device = device
        self.calls = []
        self.resident_words = set()

    def __getitem__(self, grid):
        def launch(src, scales, resident, dst, *counts, **constants):
            words, scale_words, resident_words, outputs = counts[:4]
            assert src.count == words and scales.count == scale_words
            self.calls.append((constants["WORDS"], src.address))
            self.resident_words.add(resident_words)
            beside = (resident[:resident_words], dst[:outputs])
            self.device.launch(src, scales, *beside, extra_us=grid[0] * 1e-3)

        return launch
