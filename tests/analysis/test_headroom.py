"""Headroom from counters, on the kernels whose limiter is known by construction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from analysis.machines import H200_READ, WARM, h200

from kernel_compass.analysis.joining import report_joined, report_one
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.profile import (
    DurationStats,
    KernelProfile,
    Profile,
    Regime,
    Source,
    SourceFormat,
)

MIB = 1 << 20
CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "h200_captures"
SOURCE = Source("made.csv", SourceFormat.NCU_CSV_WIDE, Regime.COLD)
H200 = Device("NVIDIA H200", "9.0", 132, 60 * MIB)


def kernel(us: float, **metrics: float) -> KernelProfile:
    known = {"sm_throughput_pct": 10.0, "dram_throughput_pct": 20.0, "l2_throughput_pct": 20.0}
    stats = DurationStats(us, us, us, us, us)
    return KernelProfile("k", (1, 1, 1), (32, 1, 1), None, 1, stats, {**known, **metrics})


def report(*kernels: KernelProfile, calibration=None, device: Device | None = H200):
    return report_one(Profile(SOURCE, device, kernels), None, calibration)


def room(us: float, calibration=None, **metrics: float):
    found = report(kernel(us, **metrics), calibration=calibration or h200())
    return found.kernels[0].kernel.diagnosis


def test_without_a_calibration_there_is_none() -> None:
    found = report(kernel(9.0, dram_bytes_read=16 * MIB, l2_bytes_read=16 * MIB))
    assert found.kernels[0].kernel.diagnosis.headroom is None
    assert found.calibration is None


@pytest.mark.parametrize(("mib", "warm", "cold"), H200_READ[3:13])
def test_a_streaming_kernel_as_ncu_times_it_has_none_to_win(
    mib: int, warm: float, cold: float
) -> None:
    """ncu's fixed cost of 1.5 us stands where the graph's 1.08 us was."""
    both = {"l2_bytes_read": mib * MIB}
    from_dram = room(cold - 1.08 + 1.5, dram_bytes_read=mib * MIB, **both)
    assert from_dram.headroom.value == pytest.approx(1.0, abs=0.001)
    from_l2 = room(warm - 1.08 + 1.5, dram_bytes_read=0.0, **both)
    assert from_l2.headroom.value == pytest.approx(1.0, abs=0.001)
    assert from_dram.headroom.basis == "traffic"


def test_the_floor_is_evidence_and_names_its_calibration() -> None:
    diagnosis = room(12.7, dram_bytes_read=16 * MIB, l2_bytes_read=16 * MIB)
    evidence = diagnosis.evidence[-1]
    assert evidence.metric == "floor_us"
    assert evidence.value == pytest.approx(5.93 - 1.08 + 1.5)
    assert "DRAM bytes" in evidence.meaning
    assert "calibration h200" in evidence.meaning
    assert diagnosis.headroom.value == pytest.approx(12.7 / evidence.value)


def test_a_kernel_faster_than_the_floor_is_reported_as_measured() -> None:
    diagnosis = room(5.0, dram_bytes_read=16 * MIB, l2_bytes_read=16 * MIB)
    assert diagnosis.headroom.value == pytest.approx(5.0 / 6.35)
    assert "faster than the calibrated one" in diagnosis.evidence[-1].meaning


def test_arithmetic_is_a_floor_too() -> None:
    diagnosis = room(
        1400.0,
        sm_throughput_pct=93.0,
        tensor_pipe_pct=93.0,
        sm_active_cycles=1e6,
        sm_elapsed_cycles=1e6,
        dram_bytes_read=128 * MIB,
        l2_bytes_read=512 * MIB,
    )
    assert diagnosis.headroom.value == pytest.approx(1 / 0.93, rel=0.01)
    assert "arithmetic pipe" in diagnosis.evidence[-1].meaning


def test_more_bytes_than_l2_holds_are_still_l2_bytes() -> None:
    """A re-read of 16 MiB forty times: L2 moves 640 MiB although it holds 60."""
    diagnosis = room(90.0, dram_bytes_read=0.0, l2_bytes_read=640 * MIB)
    assert 1.0 < diagnosis.headroom.value < 1.3


def test_what_is_not_known_gives_none() -> None:
    assert room(9.0, l2_bytes_read=16 * MIB).headroom is None
    assert room(9.0, dram_bytes_read=1 * MIB).headroom is None  # L2 may have served the rest
    no_curves = h200(curves=())
    assert room(9.0, no_curves, dram_bytes_read=1.0, l2_bytes_read=1.0).headroom is None
    bare = KernelProfile("k", None, None, None, 1, None, {"dram_bytes_read": 1.0})
    assert report(bare, calibration=h200()).kernels[0].kernel.diagnosis.headroom is None


def test_a_dram_bound_kernel_needs_no_l2_bytes() -> None:
    diagnosis = room(68.74, dram_bytes_read=256 * MIB, dram_throughput_pct=85.0)
    assert diagnosis.headroom.value == pytest.approx(68.74 / (61.34 + 0.42), rel=0.01)


def test_another_gpus_calibration_is_warned_of() -> None:
    h100 = Environment(Device("NVIDIA H100 80GB HBM3"))
    found = report(kernel(9.0), calibration=h200(environment=h100, name="h100"))
    assert any("NVIDIA H100 80GB HBM3" in warning for warning in found.warnings)
    assert not report(kernel(9.0), calibration=h200()).warnings


def test_the_share_of_an_empty_kernel_is_called_typical_on_another_gpu() -> None:
    other = h200(environment=Environment(Device("NVIDIA H100 80GB HBM3")), name="h100")
    told = [
        room(9.0, machine, dram_bytes_read=16 * MIB, l2_bytes_read=16 * MIB).evidence[-1].meaning
        for machine in (h200(), other)
    ]
    assert "typical" not in told[0]
    assert "(1.5 us of it, typical of an H200 and not this GPU's)" in told[1]
    long = room(68.74, other, dram_bytes_read=256 * MIB, dram_throughput_pct=85.0)
    assert "typical" not in long.evidence[-1].meaning  # 60 us do not rest on it


def test_joined_regimes_each_have_their_own() -> None:
    warm = kernel(5.76, dram_bytes_read=0.0, l2_bytes_read=16 * MIB)
    cold = kernel(8.62, dram_bytes_read=16 * MIB, l2_bytes_read=16 * MIB)
    profiles = {
        Regime.WARM: Profile(replace(SOURCE, regime=Regime.WARM), H200, (warm,)),
        Regime.COLD: Profile(SOURCE, H200, (cold,)),
    }
    found = report_joined(profiles, None, h200())
    views = found.kernels[0].regimes
    assert views[Regime.WARM].diagnosis.headroom.value == pytest.approx(5.76 / 4.26, rel=0.01)
    assert views[Regime.COLD].diagnosis.headroom.value == pytest.approx(8.62 / 6.35, rel=0.01)
    assert found.calibration == "h200"


KNOWN = {  # how far from its ceiling each kernel was built to be
    "k_dram_copy": (1.0, 1.2),  # a copy at 85 % of the peak
    "k_l2_reread": (1.0, 1.25),
    "k_fma_peak": (1.0, 1.02),
    "k_smem_hog": (8.0, 20.0),  # two warps an SM stream 64 MiB
    "nvjet_sm90_tst_320x128": (1.0, 1.12),  # cuBLAS 8192^3
    "nvjet_sm90_tst_512x8_": (1.0, 1.15),  # cuBLAS reading 128 MiB
    "nvjet_sm90_tst_256x8_": (1.2, 1.5),  # the 16 MiB product out of L2
    "k_tiny": (0.95, 1.1),
}


@pytest.mark.skipif(not CAPTURES.is_dir(), reason=f"the shared captures are not here: {CAPTURES}")
@pytest.mark.parametrize("name", KNOWN)
def test_kernels_built_near_and_far_from_their_ceilings(name: str) -> None:
    found = report_one(read_capture(CAPTURES / "truth_raw.csv"), None, h200())
    item = next(k for k in found.kernels if k.kernel.name.startswith(name))
    low, high = KNOWN[name]
    assert low <= item.kernel.diagnosis.headroom.value <= high


def test_a_warm_only_calibration_says_that_it_extrapolates() -> None:
    diagnosis = room(9.0, h200(curves=(WARM,)), dram_bytes_read=16 * MIB, l2_bytes_read=16 * MIB)
    assert "(extrapolated)" in diagnosis.evidence[-1].meaning
