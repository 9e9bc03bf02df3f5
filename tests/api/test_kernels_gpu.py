"""Kernel tables and floors on a real GPU, a few seconds of it."""

from __future__ import annotations

import kernels_bench as bench
import pytest
from api.fake_kernels import formats

from kernel_compass import api
from kernel_compass.measurement.floors import PackedShape, StreamingFloors, streaming_floor
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.kernel_table import RowStatus
from kernel_compass.records.profile import Regime
from kernel_compass.units import MIB

pytestmark = pytest.mark.gpu

QUICK = TimingOptions(samples=5, settle_us=2_000.0, rotation_bytes=512 * MIB, check=False)
ITEMS = api.mla_items("deepseek-v3", [1, 16], 8)


def test_a_floor_is_what_its_bytes_allow():
    device = api.open_device()
    floors = StreamingFloors(device, QUICK)
    pins = device.memory_pin_tbs()
    times = {}
    for size in (4 * MIB, 16 * MIB, 64 * MIB):
        shape = PackedShape(size, size // 32, size // 64, 4096)
        for regime in (Regime.WARM, Regime.COLD):
            times[size, regime] = floors.of(shape, regime, 256).time_us
        read = shape.weight_bytes + shape.scale_bytes
        assert pins is None or times[size, Regime.COLD] > read / (pins * 1e6)
        assert times[size, Regime.WARM] < 1.05 * times[size, Regime.COLD]
    assert times[4 * MIB, Regime.COLD] < times[16 * MIB, Regime.COLD] < times[64 * MIB, Regime.COLD]
    one = streaming_floor(device, 16 * MIB, MIB // 2, MIB // 4, Regime.COLD, 256, 4096)
    assert one.time_us == pytest.approx(times[16 * MIB, Regime.COLD], rel=0.15)


@pytest.mark.parametrize("streamed", [False, True])
def test_both_products_are_checked_and_timed_beside_the_baseline(streamed):
    request = api.TableRequest(
        ITEMS, formats("bf16", "w8a16_fp8", "w4a16_gk"), implementations=("own_decode",)
    )
    opened = api.open_table(request, options=QUICK, streamed_floors=streamed)
    rows = list(opened.rows())
    assert {r.status for r in rows} == {RowStatus.MEASURED}, [r.reason for r in rows]
    names = {r.implementation for r in rows}
    assert names == {"cublas_bf16", "own_decode"}
    for row in rows:
        assert row.fidelity_error_pct < 0.4
        assert row.speedup is not None
        assert row.headroom is None or row.headroom > 0.7
    again = api.open_table(request, known=rows, options=QUICK)
    assert again.run.total == 0


def test_kernels_are_launched_in_ranges():
    request = api.TableRequest(ITEMS[:1], formats("bf16"), implementations=("cublas_bf16",))
    named, failed = api.profile_kernels(request)
    assert list(failed) == []
    assert list(named) == ["q_absorb.bmm.16x1x128x512.bf16.cublas_bf16"]


def test_a_part_of_the_benchmark_compiles_and_passes_its_checks(tmp_path):
    words = ("--sections", "gate", "--tokens", "1", "--formats", "w8a16_fp8")
    plan, _ = bench.parsed([*words, "--output", str(tmp_path / "t.json")])
    launched, failed, _ = bench.compile_part(plan.jobs()[0], QUICK, plan.floor_activations)
    assert failed == []
    assert launched >= 2
