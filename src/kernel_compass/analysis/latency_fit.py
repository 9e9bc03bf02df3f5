"""Fitting a kernel's terms to a handful of probes: the most probable terms, and what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import Evidence, KernelTerms, Term
from kernel_compass.analysis.latency import check_traffic, is_cold, predict
from kernel_compass.analysis.latency_curve import (
    Array,
    Batch,
    linearized,
    log_terms,
    log_time,
)
from kernel_compass.analysis.latency_residual import NOISE, covariance, features
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Traffic, Workload

INTERVAL_SD = 1.96
"""Half-width of the 95 % interval of a parameter, in standard deviations of its logarithm."""
LEARNT = 0.7
"""A parameter counts as identified when the probes narrowed it to this share of its prior."""
ITERATIONS = 60


@dataclass(frozen=True)
class Probe:
    """One measured launch."""

    traffic: Traffic
    regime: Regime
    time_us: float
    workload: Workload | None = None


@dataclass(frozen=True)
class Parameter:
    """A fitted term with its 95 % interval."""

    name: str
    value: float
    low: float
    high: float
    identified: bool
    """The probes narrowed it; otherwise it is still what was believed before."""


@dataclass(frozen=True)
class Fit:
    """Terms fitted to probes."""

    terms: KernelTerms
    parameters: tuple[Parameter, ...]
    held_out_error_pct: float | None
    """Mean absolute error on each probe predicted from the others, percent; `None` with fewer
    than 2 probes, or where it was not asked for."""

    @property
    def parameter_count(self) -> int:
        """How many terms were free."""
        return len(self.parameters)

    @property
    def identifiable(self) -> tuple[str, ...]:
        """The parameters that the probes moved away from the prior."""
        return tuple(p.name for p in self.parameters if p.identified)


def fit_terms(
    probes: Sequence[Probe], ceilings: Ceilings, prior: KernelTerms, leave_one_out: bool = True
) -> Fit:
    """The most probable terms, given the probes and the prior.

    No probes give the prior back. Probes of one cell only teach what that cell can.

    Args:
        probes: measured launches of one kernel.
        ceilings: of the machine they ran on.
        prior: what was believed before.
        leave_one_out: also refit once per probe without it, for `held_out_error_pct`.

    Raises:
        UsageError: a time is not a positive finite number, or a regime is neither cold nor warm.
    """
    _check(probes)
    prior = replace(prior, evidence=None)
    terms, covariance_of_terms = _fitted(probes, ceilings, prior)
    error = _held_out(probes, ceilings, prior) if leave_one_out else None
    return Fit(terms, _parameters(terms, prior, covariance_of_terms), error)


def population_prior(fits: Sequence[Fit], prior: KernelTerms) -> KernelTerms:
    """A prior learnt from the same kernel on other machines.

    Their median terms, as wide as they differ; the given prior counts as one machine more, so
    that few machines do not make it certain.
    """
    if not fits:
        return prior
    centre, sd = log_terms(prior)
    found = np.array([log_terms(fit.terms)[0] for fit in fits])
    mean = (found.sum(axis=0) + centre) / (len(fits) + 1)
    spread = np.sqrt((np.sum((found - mean) ** 2, axis=0) + sd**2) / (len(fits) + 1))
    return _with_terms(prior, mean, spread)


def _check(probes: Sequence[Probe]) -> None:
    for number, probe in enumerate(probes):
        check_traffic(probe.traffic)
        is_cold(probe.regime)
        if not (math.isfinite(probe.time_us) and probe.time_us > 0):
            raise UsageError(
                f"The time of probe {number} is {probe.time_us} us.",
                "A probe needs a positive finite time: measure it again or leave it out.",
            )


def _fitted(
    probes: Sequence[Probe], ceilings: Ceilings, prior: KernelTerms
) -> tuple[KernelTerms, Array]:
    centre, sd = log_terms(prior)
    if not probes:
        return prior, np.diag(sd**2)
    batch = Batch.of([p.traffic for p in probes], [is_cold(p.regime) for p in probes], ceilings)
    log_us = np.log([p.time_us for p in probes])
    here = features(batch)
    error = covariance(here, here, prior.shape_choice_sd) + NOISE**2 * np.eye(len(log_us))
    problem = _Problem(log_us, _inverse(error), centre, sd, prior, batch, ceilings)
    theta = min((problem.descend(start) for start in problem.starts()), key=problem.cost)
    model, jacobian = linearized(theta, prior, batch, ceilings)
    spread = _inverse(problem.curvature(jacobian))
    joint = error + (jacobian * sd**2) @ jacobian.T
    evidence = Evidence(
        features=_rows(here),
        jacobian=_rows(jacobian),
        prior_sd=tuple(sd.tolist()),
        weights=tuple((problem.precision @ (log_us - model)).tolist()),
        solve=_rows(_inverse(joint)),
    )
    terms = _with_terms(prior, theta, np.sqrt(np.diag(spread)))
    return replace(terms, evidence=evidence), spread


@dataclass(frozen=True)
class _Problem:
    """Generalized least squares with a Gaussian prior, by Levenberg and Marquardt."""

    log_us: Array
    precision: Array
    centre: Array
    sd: Array
    prior: KernelTerms
    batch: Batch
    ceilings: Ceilings

    def starts(self) -> list[Array]:
        """The prior's median, and kernels one standard deviation nearer to and farther from the
        ceilings: which part decides a time can differ between them."""
        return [self.centre, self.centre + self.sd, self.centre - self.sd]

    def cost(self, theta: Array) -> float:
        left = self.log_us - log_time(theta, self.prior, self.batch, self.ceilings)
        pull = (theta - self.centre) / self.sd
        return float(left @ self.precision @ left + pull @ pull)

    def curvature(self, jacobian: Array) -> Array:
        inner: Array = jacobian.T @ self.precision @ jacobian + np.diag(1 / self.sd**2)
        return inner

    def descend(self, theta: Array) -> Array:
        damping, cost = 1e-2, self.cost(theta)
        for _ in range(ITERATIONS):
            model, jacobian = linearized(theta, self.prior, self.batch, self.ceilings)
            inner = self.curvature(jacobian)
            slope = jacobian.T @ self.precision @ (self.log_us - model)
            slope -= (theta - self.centre) / self.sd**2
            trial = theta + np.linalg.solve(inner + damping * np.diag(np.diag(inner)), slope)
            gained = cost - (trial_cost := self.cost(trial))
            if gained > 0:
                theta, cost, damping = trial, trial_cost, damping / 5
            else:
                damping *= 5
            if 0 < gained < 1e-4 or damping > 1e8:
                break
        return theta


def _parameters(terms: KernelTerms, prior: KernelTerms, spread: Array) -> tuple[Parameter, ...]:
    theta, _ = log_terms(terms)
    _, before = log_terms(prior)
    after = np.sqrt(np.diag(spread))
    return tuple(
        Parameter(
            name=name,
            value=float(np.exp(t)),
            low=float(np.exp(t - INTERVAL_SD * s)),
            high=float(np.exp(t + INTERVAL_SD * s)),
            identified=bool(s < LEARNT * b),
        )
        for name, t, s, b in zip(prior.names, theta, after, before, strict=True)
    )


def _held_out(probes: Sequence[Probe], ceilings: Ceilings, prior: KernelTerms) -> float | None:
    if len(probes) < 2:
        return None
    errors = []
    for number, probe in enumerate(probes):
        others = [p for i, p in enumerate(probes) if i != number]
        terms, _ = _fitted(others, ceilings, prior)
        found = predict(probe.traffic, terms, probe.regime, ceilings)
        errors.append(abs(found.time_us / probe.time_us - 1))
    return 100.0 * float(np.mean(errors))


def _with_terms(prior: KernelTerms, theta: Array, sd: Array) -> KernelTerms:
    terms = replace(prior, evidence=None)
    for name, t, s in zip(prior.names, theta, sd, strict=True):
        terms = replace(terms, **_one(name, Term(float(np.exp(t)), float(s))))
    return terms


def _one(name: str, term: Term) -> dict[str, Any]:
    return {name: term}


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _rows(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
