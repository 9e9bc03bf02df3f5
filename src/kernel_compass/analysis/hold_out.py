"""The hold-out: fresh processes decide, once.

A process places its operands once, and its times share what that does to them: pairs of one process
are one observation of it, however many there are. So each process counts as its trimmed mean, and
the interval is Student's t over the processes. With normal noise it is exact, and with processes of
unequal noise conservative at levels up to 8 % (Bakirov & Szekely 2005; Ibragimov & Mueller 2010).
A bootstrap of five processes, pairs within or not, is far too narrow
(`benchmarks/comparison_power.py --coverage`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from kernel_compass.analysis.decision import (
    decide,
    interval,
    interval_text,
    not_worse_than,
    reason,
)
from kernel_compass.analysis.distributions import t_quantile, t_upper_tail
from kernel_compass.analysis.location import Error, Location, locate
from kernel_compass.analysis.pairing import check_alike, log_ratios, said_against
from kernel_compass.errors import UsageError
from kernel_compass.records.comparison import (
    ComparisonResult,
    Decision,
    Interval,
    Rejection,
    Rule,
    Stage,
    Verdict,
)
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.profile import Regime
from kernel_compass.units import percent_text

_MOST_PROCESSES = 100


def by_process(samples: Sequence[PairedSamples]) -> dict[int, Location]:
    """Location of each process's pairs; several runs of one process are joined in order.

    Raises:
        UsageError: nothing, or samples that were measured differently.
    """
    if not samples:
        raise UsageError("No samples.", "Measure pairs in fresh processes.")
    for other in samples[1:]:
        check_alike(samples[0], other)
    logs: dict[int, list[np.ndarray]] = {}
    for run in samples:
        logs.setdefault(run.process, []).append(log_ratios(run))
    return {process: locate(np.concatenate(runs)) for process, runs in logs.items()}


def hold_out(samples: Sequence[PairedSamples], rule: Rule) -> ComparisonResult:
    """What fresh processes find in one regime; every process counts once.

    Raises:
        UsageError: fewer processes than the rule asks for, or samples measured differently.
        MeasurementError: times that are no times.
    """
    processes = list(by_process(samples).values())
    if len(processes) < rule.hold_out_processes:
        raise UsageError(
            f"{len(processes)} processes; a hold-out needs {rule.hold_out_processes}.",
            "Measure in more fresh processes: pairs of one process are no substitute.",
        )
    centers = np.array([process.center for process in processes])
    center = float(centers.mean())
    error = Error(_standard_error(centers, processes), centers.size - 1)
    half = error.half_width(rule.hold_out_alpha / 2)
    found = interval(center, half, 1 - rule.hold_out_alpha)
    decision = decide(found, rule.minimum_effect)
    first = samples[0]
    return ComparisonResult(
        decision=decision,
        stage=Stage.HOLD_OUT,
        speedup=found,
        minimum_effect=rule.minimum_effect,
        regime=first.regime,
        launch_mode=first.launch_mode,
        launches_per_replay=first.launches_per_replay,
        pairs=sum(process.pairs for process in processes),
        looks=1,
        processes=len(processes),
        alpha_spent=rule.hold_out_alpha,
        pair_noise_pct=100 * math.sqrt(np.mean([p.pair_noise**2 for p in processes])),
        reasons=_reasons(decision, found, center, error, rule),
        warnings=said_against(samples),
        environment=first.environment,
        p_value=_p_value(center, error, rule),
    )


def _standard_error(centers: np.ndarray, processes: Sequence[Location]) -> float:
    """Of the mean over processes: from their scatter, and never under what their own noise gives.

    A few processes can agree by chance, or repeat each other's rounding, far better than their
    pairs allow.
    """
    between = float(centers.std(ddof=1))
    within = math.sqrt(float(np.mean([p.groups.standard**2 for p in processes])))
    return max(between, within) / math.sqrt(centers.size)


def confirm(
    samples: Sequence[PairedSamples], rule: Rule, asked: Collection[Regime] | None = None
) -> Verdict:
    """Accept where the candidate is faster in every regime asked for and not inferior elsewhere.

    No correction for several regimes: all of them must hold, which only lowers the error rate.

    Args:
        samples: of every process and regime.
        rule: fixed beforehand.
        asked: the regimes in which it must win; `None` = all that were measured.

    Raises:
        UsageError: a regime asked for was not measured; what `hold_out` refuses.
        MeasurementError: times that are no times.
    """
    regimes = sorted({run.regime for run in samples})
    wanted = tuple(regimes if asked is None else sorted(set(asked)))
    missing = [regime for regime in wanted if regime not in regimes]
    if missing or not wanted:
        raise UsageError(
            f"No samples of the regimes asked for ({', '.join(missing) or 'none asked'}).",
            "Measure the hold-out in every regime that the change must win in.",
        )
    results = tuple(hold_out([s for s in samples if s.regime is r], rule) for r in regimes)
    losing = [r for r in results if r.regime in wanted and r.decision is not Decision.FASTER]
    worse = [
        r
        for r in results
        if r.regime not in wanted and not not_worse_than(r.speedup, rule.noninferiority_margin)
    ]
    rejection = Rejection.NOT_FASTER if losing else Rejection.INFERIOR_ELSEWHERE if worse else None
    return Verdict(results, wanted, rejection, _verdict_reasons(results, losing, worse, rule))


def _verdict_reasons(
    results: Sequence[ComparisonResult],
    losing: Sequence[ComparisonResult],
    worse: Sequence[ComparisonResult],
    rule: Rule,
) -> tuple[str, ...]:
    margin = percent_text(100 * rule.noninferiority_margin)
    told = [f"{r.regime}: {r.reasons[0]}" for r in losing]
    told += [
        f"{r.regime}: a slowdown of {margin} is not excluded: {interval_text(r.speedup)}"
        for r in worse
    ]
    return tuple(told or [f"{r.regime}: {interval_text(r.speedup)}" for r in results])


def _p_value(center: float, error: Error, rule: Rule) -> float:
    beyond = center - math.log1p(rule.minimum_effect)
    if error.standard == 0.0:
        return 0.0 if beyond > 0 else 1.0
    return t_upper_tail(beyond / error.standard, error.dof)


def _reasons(
    decision: Decision, found: Interval, center: float, error: Error, rule: Rule
) -> tuple[str, ...]:
    words = [reason(decision, found, rule.minimum_effect)]
    if decision is Decision.UNDECIDED:
        needed = _processes_needed(center, error, rule)
        if needed:
            odds = "has about even odds to decide"
            words.append(f"if the estimate is right, a new hold-out of {needed} {odds}")
    return tuple(words)


def _processes_needed(center: float, error: Error, rule: Rule) -> int | None:
    """Processes whose expected interval just clears the nearest limit (so in about half of such
    hold-outs); `None` = over a hundred.
    """
    distance = abs(abs(center) - math.log1p(rule.minimum_effect))
    spread = error.standard * math.sqrt(error.dof + 1)
    for count in range(error.dof + 2, _MOST_PROCESSES + 1):
        half = t_quantile(rule.hold_out_alpha / 2, count - 1) * spread / math.sqrt(count)
        if half < distance:
            return count
    return None
