"""Effective capacity: on made-up curves with a known cliff, and on published and measured ones."""

from __future__ import annotations

import csv
import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernel_compass.analysis.capacity import c_eff, capacity
from kernel_compass.analysis.capacity_grid import STEP_BYTES, refine_grid, working_sets
from kernel_compass.analysis.dram_onset import dram_onset
from kernel_compass.errors import CalibrationError
from kernel_compass.records.calibration import Basis
from kernel_compass.units import MIB

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "cache_barrier"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data are not at {DATA}")

# H200, warm re-read by a Triton kernel, us by MiB.
H200_US = {
    **{1: 1.76, 2: 2.06, 4: 2.34, 8: 2.88, 12: 3.34, 16: 3.84, 20: 4.27, 24: 4.82, 28: 5.18},
    **{32: 5.79, 36: 6.14, 40: 6.71, 44: 7.13, 48: 12.25, 52: 14.32, 56: 15.40, 60: 16.31},
    **{64: 17.26, 80: 20.92, 96: 24.58, 128: 31.94, 256: 61.37, 512: 120.26},
}


def model_us(mib, cliff=46.0, l2_tbs=8.0, dram_tbs=4.5, width=2.0, t0=1.5):
    """Launch + L2 below the cliff, launch + DRAM well behind it, linear in the share between."""
    size = np.asarray(mib, float)
    share = np.clip((size - cliff) / width, 0, 1)
    per_mib = share / dram_tbs + (1 - share) / l2_tbs
    return t0 + size * MIB / 1e6 * per_mib


def grid_mib(quick=False):
    return np.array(working_sets(quick)) / MIB


def noisy(times, pct, seed, repeats=5):
    rng = np.random.default_rng(seed)
    return times * (1 + pct / 100 * rng.standard_normal((repeats, times.size)))


def published():
    """Curves by GPU and grid: sizes in bytes, times `(runs, sizes)` in us."""
    runs = defaultdict(lambda: defaultdict(list))
    with (DATA / "residency_cliff.csv").open() as file:
        for row in csv.DictReader(file):
            size = float(row["buffer_mib"]) * MIB
            time = size / float(row["read_bw_tbs"]) / 1e6
            runs[row["gpu"], row["grid"]][int(row["run"])].append((size, time))
    result = {}
    for key, by_run in runs.items():
        tables = [np.array(sorted(points)) for _, points in sorted(by_run.items())]
        result[key] = tables[0][:, 0], np.array([table[:, 1] for table in tables])
    return result


@needs_data
@pytest.mark.parametrize(
    ("gpu", "grid", "mib", "within"),
    [
        ("H100-80GB", "fine_0.5mib", 39.75, 1.0),
        ("B200", "fine_0.5mib", 90.33, 1.0),
        ("B300", "fine_0.5mib", 91.58, 1.0),
        ("A100-40GB", "coarse_14pt", 31.2, 0.1),
        ("H100-80GB", "coarse_14pt", 39.0, 0.1),
        ("B200", "coarse_14pt", 98.8, 0.1),
        ("B300", "coarse_14pt", 98.8, 0.1),
    ],
)
def test_published_capacities(gpu, grid, mib, within):
    sizes, times = published()[gpu, grid]
    found = c_eff(sizes, times)
    assert found.basis is Basis.MEASURED
    assert found.value / MIB == pytest.approx(mib, abs=within)
    assert found.low < found.value < found.high
    assert found.high - found.low <= (4 * MIB if "fine" in grid else 11 * MIB)


@needs_data
def test_every_published_run_agrees_the_one_with_the_false_early_break_too():
    for (gpu, grid), (sizes, times) in published().items():
        if grid != "fine_0.5mib":
            continue
        each = [capacity(sizes, run).c_eff_bytes / MIB for run in times]
        assert max(each) - min(each) <= 1.0, (gpu, each)


@needs_data
def test_a_coarse_and_a_fine_grid_of_one_gpu_agree_within_the_coarse_interval():
    curves = published()
    coarse = capacity(*curves["H100-80GB", "coarse_14pt"])
    fine = capacity(*curves["H100-80GB", "fine_0.5mib"])
    assert coarse.low_bytes <= fine.c_eff_bytes <= coarse.high_bytes


def test_the_h200_table():
    found = capacity(np.array(list(H200_US)) * MIB, list(H200_US.values()))
    assert (found.last_resident_bytes, found.first_spilled_bytes) == (44 * MIB, 48 * MIB)
    assert found.c_eff_bytes == 46 * MIB
    assert found.foot_bytes == 52 * MIB
    refined = np.array(refine_grid(np.array(list(H200_US)) * MIB, list(H200_US.values()))) / MIB
    assert refined.min() <= 43
    assert refined.max() >= 49
    assert {44.5, 45.0, 45.5, 46.0, 46.5, 47.0, 47.5} <= set(refined)


@pytest.mark.parametrize("cliff", [4.0, 12.0, 33.0, 46.0, 60.0, 72.0, 90.0, 125.0])
@pytest.mark.parametrize("quick", [True, False])
def test_a_known_cliff_is_found_to_the_step(cliff, quick):
    """From the first grid on, refined until there is nothing left to refine."""

    def times(sizes):
        small = cliff < 20  # such a cache has an older, slower memory behind it
        return model_us(sizes / MIB, cliff, *((1.2, 0.3) if small else (8.0, 4.5)), width=0.5)

    sizes = np.array(working_sets(quick), float)
    for _ in range(4):
        more = refine_grid(sizes, times(sizes))
        if not more:
            break
        sizes = np.union1d(sizes, more)
    assert not refine_grid(sizes, times(sizes))
    found = capacity(sizes, times(sizes))
    assert found.high_bytes - found.low_bytes <= 2 * STEP_BYTES
    assert found.c_eff_bytes / MIB == pytest.approx(cliff, abs=1.0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pct", [1.0, 3.0])
def test_noise_moves_it_little_and_the_interval_covers_it(seed, pct):
    sizes = np.union1d(grid_mib(), np.arange(40, 52.5, 0.5))
    found = capacity(sizes * MIB, noisy(model_us(sizes), pct, seed), seed)
    assert found.c_eff_bytes / MIB == pytest.approx(46.25, abs=1.0)
    assert found.low_bytes <= 46.5 * MIB
    assert found.high_bytes >= 46 * MIB


@pytest.mark.parametrize("width", [4.0, 12.0, 30.0])
def test_a_soft_cliff_begins_where_the_times_leave_the_line(width):
    sizes = np.union1d(grid_mib(), np.arange(40, 60, 0.5))
    found = capacity(sizes * MIB, model_us(sizes, 46.0, width=width))
    leaves = next(s for s in sizes if model_us(s, 46.0, width=width) > 1.05 * model_us(s, 1e9))
    assert found.first_spilled_bytes / MIB == pytest.approx(leaves, abs=1.0)
    assert found.foot_bytes >= found.first_spilled_bytes


def test_a_plateau_above_the_peak_of_l2_does_not_hide_the_cliff():
    """At 512 MiB the launch no longer counts: DRAM then beats what L2 reached at 90 MiB."""
    sizes = grid_mib()
    times = np.where(sizes < 90, 2.3 + sizes * 0.137, 10 + sizes * 0.131)
    bandwidth = sizes / times
    assert bandwidth[-1] > bandwidth[:-1].max()
    assert capacity(sizes * MIB, times).c_eff_bytes / MIB == pytest.approx(92, abs=4.1)


@pytest.mark.parametrize("at", [3, 9, 12])
@pytest.mark.parametrize("factor", [1.08, 1.5, 3.0])
def test_a_false_early_break_is_no_cliff(at, factor):
    """Someone else's work slowed two neighbouring sizes."""
    sizes = grid_mib()
    times = model_us(sizes)
    times[at : at + 2] *= factor
    assert capacity(sizes * MIB, times).c_eff_bytes / MIB == pytest.approx(46, abs=2.1)


@pytest.mark.parametrize("factor", [0.6, 1.7])
@pytest.mark.parametrize("at", range(0, 30, 3))
def test_one_outlier_changes_little(at, factor):
    sizes = grid_mib()
    clean = capacity(sizes * MIB, model_us(sizes))
    times = model_us(sizes)
    times[at] *= factor
    found = capacity(sizes * MIB, times)
    nearest = np.abs(sizes - 46).argsort()[:2]
    if at not in nearest:
        assert found.c_eff_bytes == pytest.approx(clean.c_eff_bytes, rel=0.13)


@pytest.mark.parametrize(
    "times",
    [
        model_us(grid_mib(), cliff=1e9),
        model_us(grid_mib(), cliff=0.0, width=1e-9),
        model_us(grid_mib(), l2_tbs=4.7),
        np.linspace(5, 6, grid_mib().size),
        noisy(model_us(grid_mib(), cliff=1e9), 3.0, 1),
    ],
    ids=["all in L2", "all in DRAM", "levels alike", "launch only", "noise only"],
)
def test_no_cliff_is_absent_with_the_reason(times):
    found = c_eff(grid_mib() * MIB, times)
    assert (found.value, found.low, found.basis) == (None, None, Basis.ABSENT)
    assert "512 MiB" in found.source
    assert refine_grid(grid_mib() * MIB, times) == ()


def test_a_curve_that_ends_at_its_first_slow_size_proves_nothing():
    mib = np.array([8.0, 16, 24, 32, 40, 48])
    assert c_eff(mib * MIB, model_us(mib, 42.0)).basis is Basis.ABSENT


def test_too_few_sizes_are_absent():
    assert "3 sizes" in c_eff(np.array([8, 32, 64]) * MIB, [2.0, 5.0, 17.0]).source
    assert c_eff([], []).basis is Basis.ABSENT


def test_order_and_doubles_and_missing_repeats_do_not_matter():
    sizes, times = grid_mib() * MIB, noisy(model_us(grid_mib()), 0.5, 3)
    expected = capacity(sizes, times)
    order = np.random.default_rng(0).permutation(sizes.size)
    assert capacity(sizes[order], times[:, order]) == expected
    twice = capacity(np.concatenate([sizes, sizes]), np.concatenate([times, times], axis=1))
    assert twice == expected
    holes = times.copy()
    holes[1:, ::2] = np.nan
    assert capacity(sizes, holes).c_eff_bytes == pytest.approx(expected.c_eff_bytes, rel=0.1)


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ([1, 2, 3], [1.0, 2.0]),
        ([[1, 2]], [[1.0, 2.0]]),
        ([1, 2], [1.0, 0.0]),
        ([1, 2], [1.0, -2.0]),
        ([1, 2], [1.0, np.inf]),
        ([0, 2], [1.0, 2.0]),
        ([1, np.nan], [1.0, 2.0]),
    ],
)
def test_what_is_no_curve_is_refused(sizes, times):
    with pytest.raises(CalibrationError):
        c_eff(sizes, times)


def test_the_result_is_repeatable():
    sizes, times = grid_mib() * MIB, noisy(model_us(grid_mib()), 2.0, 5)
    assert c_eff(sizes, times) == c_eff(sizes, times)


@pytest.mark.parametrize("quick", [True, False])
def test_the_first_grid(quick):
    sizes = working_sets(quick)
    assert sizes[0] == MIB // 2
    assert sizes[-1] == 512 * MIB
    assert all(a < b for a, b in itertools.pairwise(sizes))
    assert all(size % STEP_BYTES == 0 for size in sizes)
    assert len(sizes) <= (20 if quick else 50)
    assert set(working_sets(True)) <= set(working_sets(False))


@pytest.mark.parametrize("budget", [0, 1, 5, 16, 100])
def test_refining_keeps_to_its_budget(budget):
    sizes = np.array(working_sets(True), float)
    more = refine_grid(sizes, model_us(sizes / MIB, 90.0), budget)
    assert len(more) <= budget
    assert not set(more) & set(sizes)
    assert all(size % STEP_BYTES == 0 for size in more)


@pytest.mark.parametrize("cliff", [30.0, 46.0, 47.9, 90.0])
def test_two_rounds_of_six_find_the_half_mebibyte(cliff):
    sizes = np.array(working_sets(True), float)
    for _ in range(2):
        sizes = np.union1d(sizes, refine_grid(sizes, model_us(sizes / MIB, cliff, width=0.5), 6))
    found = capacity(sizes, model_us(sizes / MIB, cliff, width=0.5))
    wide = 4 * STEP_BYTES if cliff > 64 else STEP_BYTES  # the first grid's steps double there
    assert found.first_spilled_bytes - found.last_resident_bytes <= wide
    assert found.last_resident_bytes <= (cliff + 0.5) * MIB
    assert found.first_spilled_bytes >= cliff * MIB


@pytest.mark.parametrize("factor", [1e-3, 0.5, 7.0, 1e4])
def test_units_of_time_and_size_do_not_matter(factor):
    sizes = grid_mib() * MIB
    times = noisy(model_us(grid_mib()), 1.0, 4)
    expected = capacity(sizes, times)
    longer = capacity(sizes, times * factor)
    assert replace(longer, drop_pct=0) == replace(expected, drop_pct=0)
    scaled = capacity(sizes * factor, times)
    assert scaled.c_eff_bytes == pytest.approx(expected.c_eff_bytes * factor)


def shares(pairs):
    return [(mib * MIB, mib * MIB * share) for mib, share in pairs]


def test_dram_onset_of_a_made_up_ramp():
    found = dram_onset(shares([(20, 0.0), (30, 0.0), (40, 0.4), (50, 0.8), (60, 1.0)]))
    assert found.onset.bytes == pytest.approx(32.5 * MIB)
    assert (found.onset.low_bytes, found.onset.high_bytes) == (30 * MIB, 40 * MIB)
    assert found.c_eff.bytes == pytest.approx(42.5 * MIB)


def test_dram_onset_survives_noise_and_order():
    pairs = [(60, 0.95), (20, 0.02), (24, 0.15), (28, 0.01), (32, 0.03), (40, 0.5), (36, 0.3)]
    found = dram_onset(shares(pairs))
    assert 32 * MIB <= found.onset.bytes <= 36 * MIB
    assert 36 * MIB < found.c_eff.bytes <= 60 * MIB


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_no_onset_where_no_size_passes(share):
    found = dram_onset(shares([(mib, share) for mib in (8, 16, 32, 64)]))
    assert found.onset is None
    assert found.c_eff is None
    assert dram_onset([]).c_eff is None


@pytest.mark.parametrize("points", [[(0, 1)], [(1, -1)], [(1, np.nan)], [(np.inf, 1)]])
def test_dram_onset_refuses_nonsense(points):
    with pytest.raises(CalibrationError):
        dram_onset(points)


@needs_data
@pytest.mark.parametrize(
    ("context", "onset_mib", "half_mib"),
    [("capacity_reread_sum", (32, 36), (36, 40)), ("capacity_gemm_T1", (32, 36), (36, 40))],
)
def test_dram_onset_of_the_published_counters(context, onset_mib, half_mib):
    with (DATA / "ncu_counters.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["context"] == context]
    sizes = [float(row["weight_bf16_mib"] or row["footprint_mib"]) * MIB for row in rows]
    found = dram_onset(
        [(s, float(r["dram_read_mb"]) * 1e6) for s, r in zip(sizes, rows, strict=True)]
    )
    assert (found.onset.low_bytes / MIB, found.onset.high_bytes / MIB) == onset_mib
    assert (found.c_eff.low_bytes / MIB, found.c_eff.high_bytes / MIB) == half_mib
