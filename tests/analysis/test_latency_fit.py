"""Fitting: planted kernels are found again; thin, degenerate and impossible probes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from analysis.latency_samples import MACHINE, bmm, by_hand_us, exactly, grid, planted

from kernel_compass.analysis.kernel_terms import PRIOR, KernelTerms
from kernel_compass.analysis.latency import COVERAGE, predict, predict_many
from kernel_compass.analysis.latency_curve import Batch, linearized, log_terms
from kernel_compass.analysis.latency_fit import Probe, fit_terms, population_prior
from kernel_compass.analysis.latency_residual import NOISE, covariance, features
from kernel_compass.analysis.probe_choice import choose_probes
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision, Traffic

TRUE = {"launches": 1.4, "l2_efficiency": 0.5, "dram_efficiency": 0.8, "math_efficiency": 0.15}


def probes(moved: list[Traffic], noise: float = 0.0, seed: int = 0) -> list[Probe]:
    """Times of a planted bf16 kernel, by plain arithmetic."""
    rng = np.random.default_rng(seed)
    times = [by_hand_us(m, *TRUE.values()) * math.exp(noise * rng.normal()) for m in moved]
    return [Probe(m, Regime.WARM, t) for m, t in zip(moved, times, strict=True)]


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 0.12), (0.02, 0.15)])
def test_planted_terms_are_found_again(noise: float, tolerance: float) -> None:
    fit = fit_terms(probes(grid(), noise), MACHINE, PRIOR[Precision.BF16], leave_one_out=False)
    found = {parameter.name: parameter for parameter in fit.parameters}
    for name, expected in TRUE.items():
        assert found[name].low <= expected <= found[name].high, name
    for name in ("l2_efficiency", "dram_efficiency", "math_efficiency"):
        assert found[name].value == pytest.approx(TRUE[name], rel=tolerance), name
        assert found[name].identified
    assert fit.parameter_count == 5


def test_six_chosen_probes_predict_the_cells_they_have_not_seen() -> None:
    moved = grid()
    chosen = choose_probes(moved, 6, 3, MACHINE)
    fit = fit_terms(probes([moved[i] for i in chosen]), MACHINE, PRIOR[Precision.BF16])
    rest = [m for i, m in enumerate(moved) if i not in chosen]
    found = predict_many(rest, fit.terms, Regime.WARM, MACHINE)
    errors = [
        abs(p.time_us / by_hand_us(m, *TRUE.values()) - 1) for p, m in zip(found, rest, strict=True)
    ]
    before = predict_many(rest, PRIOR[Precision.BF16], Regime.WARM, MACHINE)
    assert np.mean(errors) < 0.05
    assert fit.held_out_error_pct is not None
    assert 0 < fit.held_out_error_pct < 30
    for narrow, wide in zip(found, before, strict=True):
        assert narrow.low_us < narrow.time_us < narrow.high_us
        assert narrow.high_us / narrow.low_us < wide.high_us / wide.low_us


def test_cold_probes_tell_dram_and_warm_ones_tell_l2() -> None:
    small = [bmm(mib, 1) for mib in (8, 12, 16, 20, 24)]
    times = {
        regime: [
            p.time_us for p in predict_many(small, exactly(Precision.BF16, **TRUE), regime, MACHINE)
        ]
        for regime in (Regime.WARM, Regime.COLD)
    }

    def identified(regime: Regime) -> tuple[str, ...]:
        known = [Probe(m, regime, t) for m, t in zip(small, times[regime], strict=True)]
        return fit_terms(known, MACHINE, PRIOR[Precision.BF16]).identifiable

    assert "dram_efficiency" not in identified(Regime.WARM)
    assert "l2_efficiency" in identified(Regime.WARM)
    assert "dram_efficiency" in identified(Regime.COLD)
    assert "l2_efficiency" not in identified(Regime.COLD)


def test_no_probe_leaves_the_prior() -> None:
    prior = PRIOR[Precision.W4A16]
    fit = fit_terms([], MACHINE, prior)
    assert fit.terms == prior
    assert fit.identifiable == ()
    assert fit.held_out_error_pct is None


def test_one_probe_is_met_and_has_nothing_to_be_held_out_from() -> None:
    (probe,) = probes([bmm(16, 1)])
    fit = fit_terms([probe], MACHINE, PRIOR[Precision.BF16])
    found = predict(probe.traffic, fit.terms, Regime.WARM, MACHINE)
    assert found.time_us == pytest.approx(probe.time_us, rel=0.03)
    assert fit.held_out_error_pct is None


def test_the_same_cell_six_times_teaches_only_what_that_cell_can() -> None:
    same = probes([bmm(16, 1)] * 6, noise=0.02)
    fit = fit_terms(same, MACHINE, PRIOR[Precision.BF16])
    assert "math_efficiency" not in fit.identifiable
    assert "dram_efficiency" not in fit.identifiable
    far = predict(bmm(128, 256), fit.terms, Regime.WARM, MACHINE)
    near = predict(bmm(16, 1), fit.terms, Regime.WARM, MACHINE)
    assert all(map(math.isfinite, (far.low_us, far.high_us)))
    assert far.high_us / far.low_us > near.high_us / near.low_us


def test_one_wild_probe_does_not_break_the_fit() -> None:
    known = probes(grid()[::6])
    wild = [*known[1:], Probe(known[0].traffic, Regime.WARM, 1000 * known[0].time_us)]
    fit = fit_terms(wild, MACHINE, PRIOR[Precision.BF16])
    assert all(0 < p.low <= p.value <= p.high < math.inf for p in fit.parameters)
    assert fit.held_out_error_pct is not None
    assert fit.held_out_error_pct > 50


@pytest.mark.parametrize("time_us", [math.nan, -1.0, 0.0, math.inf])
def test_times_that_are_none_are_refused_by_number(time_us: float) -> None:
    good = probes([bmm(8, 1), bmm(16, 1)])
    with pytest.raises(UsageError, match=r"probe 2 is .* us"):
        fit_terms([*good, Probe(bmm(8, 1), Regime.WARM, time_us)], MACHINE, PRIOR[Precision.BF16])


def test_a_probe_of_unknown_regime_is_refused() -> None:
    with pytest.raises(UsageError, match="regime"):
        fit_terms([Probe(bmm(8, 1), Regime.IN_SITU, 3.0)], MACHINE, PRIOR[Precision.BF16])


def test_a_second_fit_starts_from_the_prior_and_not_from_old_evidence() -> None:
    first = fit_terms(probes([bmm(8, 1), bmm(64, 1)]), MACHINE, PRIOR[Precision.BF16])
    again = fit_terms([], MACHINE, first.terms)
    assert again.terms.evidence is None


def test_a_population_of_like_kernels_makes_a_closer_and_surer_prior() -> None:
    prior = PRIOR[Precision.BF16]
    whole = fit_terms(probes(grid()), MACHINE, prior, leave_one_out=False)
    learnt = population_prior([whole] * 3, prior)
    truth = TRUE["l2_efficiency"]
    assert abs(learnt.l2_efficiency.value - truth) < abs(prior.l2_efficiency.value - truth)
    assert 0 < learnt.l2_efficiency.log_sd < prior.l2_efficiency.log_sd
    assert population_prior([], prior) == prior


def test_the_band_holds_the_kernels_it_is_meant_to_hold() -> None:
    """Kernels drawn from the prior, error of the formula and noise included; six probes each."""
    rng = np.random.default_rng(5)
    prior = planted(Precision.W8A8)
    moved = grid(Precision.W8A8)
    inside = [hit for seed in range(40) for hit in band_hits(prior, moved, seed, rng)]
    assert COVERAGE - 0.06 < np.mean(inside) < COVERAGE + 0.06


def band_hits(
    prior: KernelTerms, moved: list[Traffic], seed: int, rng: np.random.Generator
) -> list[bool]:
    centre, sd = log_terms(prior)
    batch = Batch.of(moved, [False] * len(moved), MACHINE)
    here = features(batch)
    model, _ = linearized(centre + sd * rng.normal(size=len(sd)), prior, batch, MACHINE)
    error = rng.multivariate_normal(
        np.zeros(len(moved)),
        covariance(here, here, prior.shape_choice_sd) + NOISE**2 * np.eye(len(moved)),
    )
    times = np.exp(model + error)
    chosen = choose_probes(moved, 6, seed, MACHINE, prior)
    known = [Probe(moved[i], Regime.WARM, float(times[i])) for i in chosen]
    terms = fit_terms(known, MACHINE, prior, leave_one_out=False).terms
    found = predict_many(moved, terms, Regime.WARM, MACHINE)
    return [
        p.low_us <= t <= p.high_us
        for i, (p, t) in enumerate(zip(found, times, strict=True))
        if i not in chosen
    ]
