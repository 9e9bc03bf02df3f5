"""The choice of probes: before any time, by seed, and worth more than taking what comes first."""

from __future__ import annotations

import numpy as np
import pytest
from analysis.latency_samples import MACHINE, exactly, grid

from kernel_compass.analysis.kernel_terms import PRIOR
from kernel_compass.analysis.latency import predict_many
from kernel_compass.analysis.latency_fit import Probe, fit_terms
from kernel_compass.analysis.probe_choice import choose_probes
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision
from kernel_compass.units import MIB


def test_distinct_repeatable_and_changed_by_the_seed() -> None:
    choices = [choose_probes(grid(), 6, seed, MACHINE) for seed in range(10)]
    assert all(len(set(choice)) == 6 for choice in choices)
    assert choices[4] == choose_probes(grid(), 6, 4, MACHINE)
    assert len({frozenset(choice) for choice in choices}) >= 8


def test_probes_lie_on_both_sides_of_the_capacity_and_of_the_tokens() -> None:
    moved = grid()
    for seed in range(10):
        chosen = [moved[i] for i in choose_probes(moved, 6, seed, MACHINE)]
        assert any(m.total_bytes < 35 * MIB for m in chosen)
        assert any(m.total_bytes > 45 * MIB for m in chosen)
        assert min(m.tokens or 0 for m in chosen) < max(m.tokens or 0 for m in chosen)


def test_chosen_probes_teach_more_than_the_first_ones() -> None:
    moved = grid(Precision.W4A16)
    truth = exactly(Precision.W4A16, l2_efficiency=0.25, math_efficiency=0.05, launches=1.6)
    times = [p.time_us for p in predict_many(moved, truth, Regime.WARM, MACHINE)]
    prior = PRIOR[Precision.W4A16]

    def error(chosen: tuple[int, ...]) -> float:
        known = [Probe(moved[i], Regime.WARM, times[i]) for i in chosen]
        terms = fit_terms(known, MACHINE, prior, leave_one_out=False).terms
        found = predict_many(moved, terms, Regime.WARM, MACHINE)
        return float(np.mean([abs(p.time_us / t - 1) for p, t in zip(found, times, strict=True)]))

    chosen = [error(choose_probes(moved, 6, seed, MACHINE, prior)) for seed in range(5)]
    assert np.mean(chosen) < 0.6 * error(tuple(range(6)))


def test_none_and_all_can_be_asked_for_and_more_cannot() -> None:
    moved = grid()[:3]
    assert choose_probes(moved, 0, 0, MACHINE) == ()
    assert sorted(choose_probes(moved, 3, 0, MACHINE)) == [0, 1, 2]
    for count in (-1, 4):
        with pytest.raises(UsageError, match="candidates"):
            choose_probes(moved, count, 0, MACHINE)


def test_equal_candidates_are_no_trouble() -> None:
    assert len(set(choose_probes([grid()[0]] * 8, 6, 1, MACHINE))) == 6
