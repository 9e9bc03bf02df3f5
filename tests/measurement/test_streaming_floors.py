"""Floors streamed in a run, on the simulated GPU with a stand-in for torch and the kernel."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
from fake_floors import FakeTiles, FloorDevice

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement import floors as module
from kernel_compass.measurement.floors import (
    KEPT_CONFIGS,
    PACKED_CONFIGS,
    PackedShape,
    StreamingFloors,
)
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.profile import Regime
from kernel_compass.units import MIB

SHAPE = PackedShape(4 * MIB, 128 * 512 * 2, 128 * 16 * 512 * 2, 128 * 16 * 128 * 2)


@pytest.fixture
def lab(monkeypatch):
    device = FloorDevice()
    kernel = FakeTiles(device)
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
    assert len(places) == 128  # 125 would do; a power of two, as the kernels beside it
    assert len(places) * step >= 8 * device.l2_bytes
    ordered = sorted(places)
    assert all(b - a >= step for a, b in pairwise(ordered))


@pytest.mark.parametrize("size_mib", [7, 64, 66, 100, 240, 241, 500])
def test_sizes_that_do_not_divide_the_rotation_are_cold_too(lab, size_mib):
    """Rounded down, 7 sets of 66 MiB would total less than 8 times L2."""
    floors, kernel, device = lab
    shape = PackedShape(size_mib * MIB, size_mib * MIB // 32, MIB, 4096)
    floors.of(shape, Regime.COLD, 256)
    places = {address for words, address in kernel.calls if words == 8192}
    total = len(places) * (shape.weight_bytes + shape.scale_bytes)
    assert total >= max(512 * MIB, 8 * device.l2_bytes)
    assert 256 % len(places) == 0  # else a replay's first launches find what its last ones read


def test_compiling_launches_every_tile_once_as_it_will_be_measured(lab):
    floors, kernel, _ = lab
    floors.compile(SHAPE)
    assert [words for words, _ in kernel.calls] == [config.words for config in PACKED_CONFIGS]
    floors.of(SHAPE, Regime.WARM, 128)
    assert {words for words, _ in kernel.calls} == {config.words for config in PACKED_CONFIGS}


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


@pytest.mark.parametrize(
    "shape, regime, asked, remedy",
    [
        (SHAPE, Regime.COLD, "528 MiB for 128 copies of 4.12 MiB", "TimingOptions.rotation_bytes"),
        (SHAPE, Regime.WARM, "4.12 MiB for weights and scales", "a smaller shape"),
        (PackedShape(MIB, 0, 4 * MIB), Regime.WARM, "4.00 MiB for outputs", "a smaller shape"),
        (PackedShape(MIB, 0, 4, 9 * MIB), Regime.WARM, "9.00 MiB for activations", "a smaller"),
    ],
)
def test_out_of_memory_says_what_was_asked_for_and_what_to_do(lab, shape, regime, asked, remedy):
    floors, _, device = lab
    device.torch.most_bytes = 4 * MIB - 1
    with pytest.raises(MeasurementError, match=asked) as refusal:
        floors.of(shape, regime, 128)
    assert refusal.value.cause is MeasurementCause.OUT_OF_MEMORY
    assert "are free" in refusal.value.found and remedy in refusal.value.remedy
    if regime is Regime.WARM:
        assert "rotat" not in refusal.value.remedy
        with pytest.raises(MeasurementError, match=asked):
            floors.compile(shape)
    device.torch.most_bytes = 1 << 40
    assert floors.of(shape, regime, 128).time_us > 0  # what failed is tried anew
