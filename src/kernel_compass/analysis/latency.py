"""The capacity-gated latency model: the time of a launch from its traffic, before it is run.

Orders candidates and says what cannot pay; never accepts anything. Formulas: docs/model.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import PRIOR, KernelTerms, Term, default_terms
from kernel_compass.analysis.latency_curve import (
    Array,
    Batch,
    Parts,
    linearized,
    log_terms,
    parts,
)
from kernel_compass.analysis.latency_residual import NOISE, covariance, features
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Traffic

__all__ = [
    "COVERAGE",
    "PRIOR",
    "Bound",
    "Ceilings",
    "KernelTerms",
    "Prediction",
    "Term",
    "default_terms",
    "predict",
    "predict_many",
]

COVERAGE = 0.9
"""Share of kernels that the band of a prediction is meant to hold."""
BAND_SD = 1.645
"""Half-width of the band in standard deviations: 90 % of a normal."""


class Bound(StrEnum):
    """Which level decides the time."""

    DRAM = "dram"
    L2 = "l2"
    COMPUTE = "compute"
    DEQUANTIZATION = "dequantization"
    LAUNCH = "launch"


@dataclass(frozen=True)
class Prediction:
    """An estimated time of one launch with a band meant to hold `COVERAGE` of kernels."""

    time_us: float
    low_us: float
    high_us: float
    bound: Bound


def predict(
    traffic: Traffic,
    terms: KernelTerms,
    regime: Regime,
    ceilings: Ceilings,
    blocks: int | None = None,
) -> Prediction:
    """The time of one launch. See `predict_many`."""
    return predict_many([traffic], terms, regime, ceilings, [blocks])[0]


def predict_many(
    traffics: Sequence[Traffic],
    terms: KernelTerms,
    regime: Regime,
    ceilings: Ceilings,
    blocks: Sequence[int | None] | None = None,
) -> list[Prediction]:
    """The times of many launches of one kernel.

    In situ nobody knows what is left in L2: the estimate is the geometric mean of warm and cold,
    and the band spans both.

    Args:
        traffics: what each launch moves and computes.
        terms: of the kernel: a prior, or fitted.
        regime: cold, warm or in_situ.
        ceilings: of the machine.
        blocks: thread blocks of each launch where the tile is known, for wave quantization.

    Raises:
        UsageError: the regime is unknown, a traffic holds a negative or non-finite number, or a
            launch has no block.
    """
    for traffic in traffics:
        check_traffic(traffic)
    for count in blocks or ():
        if count is not None and count < 1:
            raise UsageError(f"A launch has {count} blocks.", "Give 1 or more, or None.")
    if not traffics:
        return []
    if regime is Regime.IN_SITU:
        warm = predict_many(traffics, terms, Regime.WARM, ceilings, blocks)
        cold = predict_many(traffics, terms, Regime.COLD, ceilings, blocks)
        return [_between(w, c) for w, c in zip(warm, cold, strict=True)]
    batch = Batch.of(traffics, [is_cold(regime)] * len(traffics), ceilings, blocks)
    log_us, sd = _posterior(batch, terms, ceilings)
    bounds = _bounds(parts({n: t.value for n, t in terms.items()}, terms, batch, ceilings))
    spread = np.exp(BAND_SD * sd)
    return [
        Prediction(float(t), float(t / s), float(t * s), b)
        for t, s, b in zip(np.exp(log_us), spread, bounds, strict=True)
    ]


def is_cold(regime: Regime) -> bool:
    """Whether the streamed operands start in DRAM.

    Raises:
        UsageError: the regime says neither.
    """
    if regime not in (Regime.WARM, Regime.COLD):
        raise UsageError(
            f"The regime is {regime}, so where the weights lie is not known.",
            "Name cold or warm.",
        )
    return regime is Regime.COLD


def check_traffic(traffic: Traffic) -> None:
    """Refuse a traffic no launch can have.

    Raises:
        UsageError: a field is negative or not finite.
    """
    for name in (
        "weight_bytes",
        "activation_bytes",
        "output_bytes",
        "flops",
        "dequantized_weights",
    ):
        value = getattr(traffic, name)
        if not (np.isfinite(value) and value >= 0):
            raise UsageError(f"{name} of a traffic is {value}.", "It must be 0 or more.")
    if traffic.tokens is not None and not traffic.tokens >= 1:
        raise UsageError(f"tokens of a traffic is {traffic.tokens}.", "It must be 1 or more.")


def _posterior(batch: Batch, terms: KernelTerms, ceilings: Ceilings) -> tuple[Array, Array]:
    """log time and its standard deviation, given the prior or the probes in `terms.evidence`."""
    theta, sd = log_terms(terms)
    log_us, jacobian = linearized(theta, terms, batch, ceilings)
    here = features(batch)
    known = terms.evidence
    prior_sd = sd if known is None else np.array(known.prior_sd)
    own = covariance(here[:1], here[:1], terms.shape_choice_sd)[0, 0]
    variance = np.sum((jacobian * prior_sd) ** 2, axis=1) + own
    if known is not None:
        between = covariance(here, np.array(known.features), terms.shape_choice_sd)
        log_us = log_us + between @ np.array(known.weights)
        joint = between + (jacobian * prior_sd**2) @ np.array(known.jacobian).T
        variance = variance - np.sum((joint @ np.array(known.solve)) * joint, axis=1)
    return log_us, np.sqrt(np.maximum(variance, 0.0) + NOISE**2)


def _bounds(found: Parts) -> list[Bound]:
    """The largest part; L2 and DRAM together are one before the larger of the two is named."""
    memory = found.l2 + found.dram
    table = np.stack(
        [found.fixed + found.activation_pass, memory, found.compute, found.dequantization]
    )
    names = (Bound.LAUNCH, None, Bound.COMPUTE, Bound.DEQUANTIZATION)
    return [
        names[k] or (Bound.DRAM if dram >= l2 else Bound.L2)
        for k, l2, dram in zip(np.argmax(table, axis=0), found.l2, found.dram, strict=True)
    ]


def _between(warm: Prediction, cold: Prediction) -> Prediction:
    return Prediction(
        time_us=float(np.sqrt(warm.time_us * cold.time_us)),
        low_us=min(warm.low_us, cold.low_us),
        high_us=max(warm.high_us, cold.high_us),
        bound=cold.bound,
    )
