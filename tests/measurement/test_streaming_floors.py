"""Floors streamed in a run, on the simulated GPU with a stand-in for torch and the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import pytest

from kernel_compass.errors import MeasurementError
from kernel_compass.measurement import floors as module
from kernel_compass.measurement.floors import (
    KEPT_CONFIGS,
    PACKED_CONFIGS,
    PackedShape,
    StreamingFloors,
)
from kernel_compass.measurement.simulated import SimulatedDevice
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.profile import Regime
from kernel_compass.units import MIB

SHAPE = PackedShape(4 * MIB, 128 * 512 * 2, 128 * 16 * 512 * 2, 128 * 16 * 128 * 2)


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


class FakeTorch:
    int32, int16 = "int32", "int16"
    allocated = 0

    def randint(self, _low, _high, shape, dtype, device):
        return self._new(shape[0], 4)

    def empty(self, count, dtype, device):
        return self._new(count, 2)

    def _new(self, count, size):
        self.allocated += 1
        return FakeTensor(self.allocated << 44, count, size)


class Device(SimulatedDevice):
    """The simulated GPU as `StreamingFloors` meets it."""

    index = 0

    def __init__(self):
        super().__init__()
        self.torch = FakeTorch()

    def bytes_of(self, operand):
        return operand.bytes if isinstance(operand, FakeTensor) else super().bytes_of(operand)

    def address_range(self, operand):
        return operand.address, operand.address + operand.bytes


class FakeKernel:
    """Slower with every program, so that the largest tile is the best."""

    def __init__(self, device):
        self.device = device
        self.calls = []

    def __getitem__(self, grid):
        def launch(src, scales, resident, dst, *counts, **constants):
            words, scale_words, resident_words, outputs = counts[:4]
            assert src.count == words and scales.count == scale_words
            self.calls.append((constants["WORDS"], src.address))
            beside = (resident[:resident_words], dst[:outputs])
            self.device.launch(src, scales, *beside, extra_us=grid[0] * 1e-3)

        return launch


@pytest.fixture
def lab(monkeypatch):
    device = Device()
    kernel = FakeKernel(device)
    monkeypatch.setattr(module, "stream_kernels", lambda: SimpleNamespace(stream_packed=kernel))
    options = TimingOptions(samples=3, settle_us=100.0, rotation_bytes=512 * MIB, check=False)
    return StreamingFloors(device, options), kernel, device


def expected(shape, tbs, words):
    read = (shape.weight_bytes + shape.scale_bytes) / (tbs * 1e6)
    programs = -(-shape.words // words)
    warm = (shape.output_bytes + shape.activation_bytes) / 6.4e6
    return 1.0 + read + warm + programs * 1e-3


def test_the_best_tile_counts_warm_and_cold(lab):
    floors, _, _ = lab
    best = max(config.words for config in PACKED_CONFIGS)
    warm = floors.of(SHAPE, Regime.WARM, 128)
    cold = floors.of(SHAPE, Regime.COLD, 128)
    assert warm.config.words == cold.config.words == best
    assert warm.time_us == pytest.approx(expected(SHAPE, 6.4, best), rel=1e-6)
    assert cold.time_us == pytest.approx(expected(SHAPE, 4.4, best), rel=1e-6)
    assert (warm.launches, cold.launches) == (128, 128)


def test_cold_sets_are_distinct_and_all_used_within_the_launches(lab):
    floors, kernel, device = lab
    floors.of(SHAPE, Regime.COLD, 128)
    places = {address for words, address in kernel.calls if words == 8192}
    step = SHAPE.weight_bytes + SHAPE.scale_bytes
    assert len(places) == 512 * MIB // step
    assert len(places) * step >= 8 * device.l2_bytes
    ordered = sorted(places)
    assert all(b - a >= step for a, b in pairwise(ordered))


def test_too_few_launches_to_be_cold_are_refused(lab):
    with pytest.raises(MeasurementError, match="total"):
        lab[0].of(SHAPE, Regime.COLD, 16)


def test_a_floor_is_measured_once_and_the_next_batch_tries_the_best_tiles_only(lab):
    floors, kernel, _ = lab
    first = floors.of(SHAPE, Regime.WARM, 128)
    assert {words for words, _ in kernel.calls} == {config.words for config in PACKED_CONFIGS}
    kernel.calls.clear()
    assert floors.of(SHAPE, Regime.WARM, 128) is first
    assert kernel.calls == []
    floors.of(PackedShape(SHAPE.weight_bytes, SHAPE.scale_bytes, 2048), Regime.WARM, 128)
    assert len({words for words, _ in kernel.calls}) == KEPT_CONFIGS


def test_two_sets_that_are_larger_than_the_rotation(lab):
    floors, kernel, _ = lab
    large = PackedShape(400 * MIB, 4096, 4096)
    found = floors.of(large, Regime.COLD, 4)
    assert found.time_us == pytest.approx(expected(large, 4.4, 8192), rel=1e-4)
    assert len({address for words, address in kernel.calls if words == 8192}) == 2
