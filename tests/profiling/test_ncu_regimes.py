"""Two runs become one profile."""

from __future__ import annotations

from kernel_compass.profiling.ncu_regimes import overlaid, took_one_pass
from kernel_compass.records.profile import (
    DurationStats,
    KernelProfile,
    Profile,
    Regime,
    Source,
    SourceFormat,
)


def kernel(name: str, launches: int = 2, us: float = 6.0, **metrics: float) -> KernelProfile:
    stats = DurationStats(us, us, us, us, us * launches)
    return KernelProfile(name, (1, 1, 1), (32, 1, 1), 0, launches, stats, metrics)


def capture(*kernels: KernelProfile) -> Profile:
    return Profile(Source(None, SourceFormat.NCU_RUN, Regime.IN_SITU), None, kernels)


def test_cache_metrics_come_from_the_residency_run_and_the_rest_does_not() -> None:
    base = capture(
        kernel(
            "k",
            us=6.0,
            dram_bytes_read=1.4e6,
            l2_hit_rate_pct=92.0,
            sm_throughput_pct=30.0,
            memory_throughput_pct=35.0,
        )
    )
    counted = capture(kernel("k", us=9.0, dram_bytes_read=16.8e6, dram_throughput_pct=47.0))
    (merged,) = overlaid(base, counted).kernels
    assert merged.metrics == {
        "dram_bytes_read": 16.8e6,
        "dram_throughput_pct": 47.0,
        "sm_throughput_pct": 20.0,  # the same work in 9 instead of 6 us
        "memory_throughput_pct": 47.0,
    }
    assert merged.avg_duration_us == 9.0
    assert overlaid(base, counted).warnings == ()


def test_kernels_of_one_run_alone_are_told() -> None:
    base = capture(kernel("both"), kernel("a", dram_bytes_read=1.0, sm_throughput_pct=3.0))
    counted = capture(kernel("both", 3), kernel("b", dram_bytes_read=2.0))
    merged = overlaid(base, counted)
    assert [(k.name, k.launches) for k in merged.kernels] == [("both", 3), ("a", 2), ("b", 2)]
    assert merged.kernels[1].metrics == {"sm_throughput_pct": 3.0}
    text = " ".join(merged.warnings)
    assert "such as a." in text
    assert "such as b;" in text
    assert "a different number of times" in text


def test_one_pass() -> None:
    assert took_one_pass(capture(kernel("k", replay_passes=1.0), kernel("l")))
    assert not took_one_pass(capture(kernel("k", replay_passes=1.0), kernel("l", replay_passes=4)))
