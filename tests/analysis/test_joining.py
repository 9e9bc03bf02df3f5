"""Captures to one report: ranking, matching of regimes, warnings."""

from __future__ import annotations

import dataclasses

import pytest

from kernel_compass.analysis.joining import report_joined, report_one
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Flag, Reuse
from kernel_compass.records.profile import (
    DurationStats,
    KernelProfile,
    Profile,
    Regime,
    Source,
    SourceFormat,
)


def stats(*us: float) -> DurationStats:
    ordered = sorted(us)
    return DurationStats(sum(us) / len(us), ordered[len(us) // 2], ordered[0], ordered[-1], sum(us))


def kernel(name: str, us: tuple[float, ...] | None, **metrics: float) -> KernelProfile:
    launches = len(us) if us else 3
    return KernelProfile(
        name, (4, 1, 1), (32, 1, 1), 0, launches, stats(*us) if us else None, metrics
    )


def profile(regime: Regime, *kernels: KernelProfile) -> Profile:
    cache = "all" if regime is Regime.COLD else "none"
    return Profile(Source(None, SourceFormat.NCU_RUN, regime, cache), None, kernels)


def test_kernels_are_ranked_by_share_of_time() -> None:
    report = report_one(
        profile(Regime.WARM, kernel("a", (1.0, 1.0)), kernel("b", (6.0,)), kernel("c", (2.0,)))
    )
    assert [(k.kernel.name, k.share_of_time) for k in report.kernels] == [
        ("b", 0.6),
        ("a", 0.2),
        ("c", 0.2),
    ]


def test_without_every_duration_there_are_no_shares() -> None:
    report = report_one(profile(Regime.WARM, kernel("a", None), kernel("b", (6.0,))))
    assert [k.kernel.name for k in report.kernels] == ["b", "a"]
    assert {k.share_of_time for k in report.kernels} == {None}


def test_cold_tells_whose_reuse_a_warm_resident_kernel_lives_on() -> None:
    warm = kernel("a", (5.0,), dram_bytes_read=1e3, l2_bytes_read=1.7e7)
    cold = kernel("a", (8.0,), dram_bytes_read=1.68e7, l2_bytes_read=1.7e7)
    within = kernel("a", (8.0,), dram_bytes_read=1e6, l2_bytes_read=1.7e7)
    for other, reuse in ((cold, Reuse.BETWEEN), (within, Reuse.WITHIN)):
        joined = report_joined(
            {Regime.COLD: profile(Regime.COLD, other), Regime.WARM: profile(Regime.WARM, warm)}
        )
        diagnosis = joined.kernels[0].kernel.diagnosis
        assert diagnosis is not None
        assert Flag.L2_RESIDENT in diagnosis.flags
        assert diagnosis.reuse is reuse


def test_the_top_level_repeats_the_leading_regime_and_launches_are_not_summed() -> None:
    joined = report_joined(
        {
            Regime.COLD: profile(Regime.COLD, kernel("a", (8.0, 8.0))),
            Regime.IN_SITU: profile(Regime.IN_SITU, kernel("a", (7.0, 7.0, 7.0))),
        }
    )
    assert [s.regime for s in joined.sources] == [Regime.IN_SITU, Regime.COLD]
    assert joined.kernels[0].kernel.launches == 3
    assert joined.kernels[0].kernel.duration_stats == stats(7.0, 7.0, 7.0)


def test_a_kernel_that_one_capture_lacks_is_null_there_and_warned_of() -> None:
    joined = report_joined(
        {
            Regime.WARM: profile(Regime.WARM, kernel("a", (5.0,))),
            Regime.COLD: profile(Regime.COLD, kernel("a", (8.0,)), kernel("b", (1.0,))),
        }
    )
    b = next(k for k in joined.kernels if k.kernel.name == "b")
    assert b.regimes is not None
    assert b.regimes[Regime.WARM] is None
    assert any("1 kernel(s) of the cold capture" in w for w in joined.warnings)


def test_launches_of_different_problems_under_one_grid_are_warned_of() -> None:
    report = report_one(profile(Regime.WARM, kernel("gemm", (10.0, 40.0)), kernel("b", (1.0, 3.0))))
    (warning,) = report.warnings
    assert "gemm: 2 launches with one grid take 10.0 us to 40.0 us" in warning


def test_a_warm_capture_that_did_not_settle_keeps_its_doubt_when_joined() -> None:
    device = Device("a GPU", "9.0", 132, 60 << 20)
    served_by_dram = kernel("a", (12.0,), dram_bytes_read=2.8e7, l2_bytes_read=3.3e7)
    profiles = {}
    for regime in (Regime.WARM, Regime.COLD):
        one = profile(regime, served_by_dram)
        source = dataclasses.replace(one.source, replay_mode="kernel")
        profiles[regime] = dataclasses.replace(one, source=source, device=device)
    views = report_joined(profiles).kernels[0].regimes
    assert views is not None
    for view in views.values():
        assert view is not None
        assert Flag.RESIDENCY_UNKNOWN in view.diagnosis.flags


def test_the_same_kernel_on_two_gpus_stays_two() -> None:
    first = kernel("a", (5.0,))
    second = dataclasses.replace(first, device=1)
    joined = report_joined(
        {regime: profile(regime, first, second) for regime in (Regime.WARM, Regime.COLD)}
    )
    assert sorted(k.kernel.device or 0 for k in joined.kernels) == [0, 1]
    assert [k.share_of_time for k in joined.kernels] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("regime", "cache", "warned"),
    [
        (Regime.WARM, "all", True),
        (Regime.IN_SITU, "all", True),
        (Regime.COLD, "none", True),
        (Regime.COLD, "all", False),
        (Regime.WARM, None, False),
    ],
)
def test_a_regime_that_the_cache_control_contradicts_is_warned_of(
    regime: Regime, cache: str | None, warned: bool
) -> None:
    one = profile(regime, kernel("a", (5.0,)))
    named = dataclasses.replace(one, source=dataclasses.replace(one.source, cache_control=cache))
    assert any("--cache-control" in w for w in report_one(named).warnings) is warned
