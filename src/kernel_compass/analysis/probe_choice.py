"""Which launches to measure, before any time is known: those that would teach most about all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import PRIOR, KernelTerms
from kernel_compass.analysis.latency import check_traffic
from kernel_compass.analysis.latency_curve import Array, Batch, linearized, log_terms
from kernel_compass.analysis.latency_residual import NOISE, covariance, features
from kernel_compass.errors import UsageError
from kernel_compass.records.workload import Precision, Traffic

LOOKED_AT = 0.5
"""Share of the remaining candidates looked at for each probe, drawn by the seed."""


def choose_probes(
    candidates: Sequence[Traffic],
    count: int,
    seed: int,
    ceilings: Ceilings,
    prior: KernelTerms = PRIOR[Precision.BF16],
    cold: Sequence[bool] | None = None,
) -> tuple[int, ...]:
    """Indices of the candidates to measure, in the order of their worth.

    Greedy: the first is drawn; each further one is, out of a random half of the rest, the one
    that lowers most the variance of the logarithm of time summed over all candidates, under the
    prior of the terms and of the formula's error. No time enters.

    Args:
        candidates: launches that could be measured.
        count: how many to choose.
        seed: another seed gives another choice of about the same worth.
        ceilings: of the machine.
        prior: of the kernel.
        cold: which candidates run with cold weights; all warm when left out.

    Raises:
        UsageError: more probes are asked for than there are candidates, or fewer than 0.
    """
    if not 0 <= count <= len(candidates):
        raise UsageError(
            f"{count} probes are asked for out of {len(candidates)} candidates.",
            "Ask for no more than there are.",
        )
    for traffic in candidates:
        check_traffic(traffic)
    batch = Batch.of(candidates, cold or [False] * len(candidates), ceilings)
    unknown = _prior_covariance(batch, prior, ceilings)
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    while len(chosen) < count:
        rest = np.setdiff1d(np.arange(len(candidates)), chosen)
        share = 0.0 if not chosen else LOOKED_AT
        drawn = rng.choice(rest, max(1, int(np.ceil(share * len(rest)))), replace=False)
        gain = np.sum(unknown[:, drawn] ** 2, axis=0) / (np.diag(unknown)[drawn] + NOISE**2)
        best = int(drawn[np.argmax(gain)])
        chosen.append(best)
        seen = unknown[:, best]
        unknown = unknown - np.outer(seen, seen) / (seen[best] + NOISE**2)
    return tuple(chosen)


def _prior_covariance(batch: Batch, prior: KernelTerms, ceilings: Ceilings) -> Array:
    theta, sd = log_terms(prior)
    _, jacobian = linearized(theta, prior, batch, ceilings)
    here = features(batch)
    error = covariance(here, here, prior.shape_choice_sd)
    return np.asarray((jacobian * sd**2) @ jacobian.T + error, dtype=np.float64)
