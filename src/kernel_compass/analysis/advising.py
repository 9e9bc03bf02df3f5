"""Workloads against a machine: residency, floor, estimate and verdict, per precision and regime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import sqrt

from kernel_compass.analysis.cache_fit import cache_fit
from kernel_compass.analysis.error_guides import error_guides, within_budget
from kernel_compass.analysis.floor import Floor, Floors
from kernel_compass.analysis.models import Projection
from kernel_compass.analysis.paying import Contender, Ruling, in_situ, ruling
from kernel_compass.analysis.traffic import traffic
from kernel_compass.records.advice import (
    Advice,
    CacheFit,
    Estimate,
    FloorEstimate,
    FormatAdvice,
    RegimeAdvice,
    StepTotal,
    WorkloadAdvice,
)
from kernel_compass.records.calibration import Basis, Calibration
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision, Traffic, Workload
from kernel_compass.units import bytes_text

Estimator = Callable[[Traffic, Precision, Regime], Estimate | None]
"""The latency model for kernels nobody has probed, in the regime `warm` or `cold`."""

Needs = dict[Precision, Traffic]
Field = dict[Precision, Contender]
BASELINE = Precision.BF16
MOST_TOKENS_COMPARED = 512
"""The largest M of the published sweep that the latency model was scored on (docs/model.md)."""


class Adviser:
    """Answers for one machine.

    Args:
        calibration: the machine.
        estimator: the latency model over its ceilings.
        regimes: those asked for.
        budget_pct: largest relative error allowed, percent; `None` = any.
        launch_mode: how kernels are launched.
    """

    def __init__(
        self,
        calibration: Calibration,
        estimator: Estimator,
        regimes: Sequence[Regime],
        budget_pct: float | None = None,
        launch_mode: LaunchMode = LaunchMode.GRAPH,
    ) -> None:
        self._calibration = calibration
        self._estimator = estimator
        self._regimes = tuple(regimes)
        self._budget_pct = budget_pct
        self._launch_mode = launch_mode
        self._floors = Floors(calibration, launch_mode)

    def advise(self, workloads: Iterable[Workload]) -> Advice:
        """The advice for workloads that belong to no model."""
        return self._advice(tuple(self._workload(workload) for workload in workloads))

    def advise_model(self, name: str, tp: int, steps: Iterable[Sequence[Projection]]) -> Advice:
        """The advice for a model's step, for one or several batch sizes."""
        batches = [[self._projection(p) for p in projections] for projections in steps]
        found = [row for rows in batches for row in rows]
        totals = [total for rows in batches for total in self._totals(rows)]
        advice = self._advice(tuple(found))
        notes = (*advice.notes, *self._whole_step(batches))
        return replace(advice, model=name, tp=tp, totals=tuple(totals), notes=notes)

    def _advice(self, workloads: tuple[WorkloadAdvice, ...]) -> Advice:
        return Advice(
            calibration=self._calibration.name,
            device=self._calibration.environment.device,
            launch_mode=self._launch_mode,
            workloads=workloads,
            budget_pct=self._budget_pct,
            notes=(*self._of_calibration(), *_beyond_comparison(workloads)),
        )

    def _of_calibration(self) -> Iterator[str]:
        for note in self._calibration.notes:
            yield f"calibration {self._calibration.name}: {note}"

    def _whole_step(self, batches: Sequence[Sequence[WorkloadAdvice]]) -> Iterator[str]:
        """What a step as a whole does to L2: the weights of one layer push out another's."""
        capacity = self._calibration.c_eff_bytes.value
        if capacity is None:
            return
        sizes = {_step_tokens(rows): _step_weights(rows) for rows in batches if rows}
        sizes = {tokens: size for tokens, size in sizes.items() if size > capacity}
        if not sizes:
            return
        ends = dict.fromkeys(pick(sizes, key=lambda tokens: sizes[tokens]) for pick in (min, max))
        read = " to ".join(f"{bytes_text(sizes[n])} ({_tokens_text(n)})" for n in ends)
        yield (
            f"a step reads {read} of bf16 weights and L2 keeps {bytes_text(capacity)}: within a "
            f"step they come from DRAM, so `cold` describes it, and `warm` a product that is "
            f"repeated alone"
        )

    def _projection(self, projection: Projection) -> WorkloadAdvice:
        return replace(
            self._workload(projection.workload),
            layers=projection.layers,
            sharded=projection.sharded,
            assumption=projection.assumption,
        )

    def _workload(self, workload: Workload) -> WorkloadAdvice:
        needs = {precision: traffic(workload, precision) for precision in Precision}
        return WorkloadAdvice(workload, tuple(self._regime(needs, r) for r in self._regimes))

    def _regime(self, needs: Needs, regime: Regime) -> RegimeAdvice:
        field = self._contenders(needs, regime)
        if regime is Regime.IN_SITU:
            warm = self._rulings(self._contenders(needs, Regime.WARM), Regime.WARM)
            cold = self._rulings(self._contenders(needs, Regime.COLD), Regime.COLD)
            rulings = {p: in_situ(warm[p], cold[p]) for p in Precision}
        else:
            rulings = self._rulings(field, regime)
        rows = (self._format(p, needs[p], field[p], rulings[p], regime) for p in Precision)
        return RegimeAdvice(regime, tuple(rows))

    def _rulings(self, field: Field, regime: Regime) -> dict[Precision, Ruling]:
        return {p: ruling(field[p], field[BASELINE], regime) for p in Precision}

    def _format(
        self,
        precision: Precision,
        need: Traffic,
        contender: Contender,
        found: Ruling,
        regime: Regime,
    ) -> FormatAdvice:
        guides = error_guides(precision, self._calibration)
        return FormatAdvice(
            precision=precision,
            weight_bytes=need.weight_bytes,
            working_set_bytes=need.total_bytes,
            fit=contender.fit,
            floor=contender.floor,
            estimate=contender.estimate,
            at_most=found.at_most,
            errors=guides,
            within_budget=within_budget(guides, self._budget_pct),
            verdict=None if precision is BASELINE else found.verdict,
            reason="" if precision is BASELINE else found.reason,
            l2_flops_per_byte=need.flops / need.total_bytes,
            dram_flops_per_byte=_dram_intensity(need, contender.fit, regime),
        )

    def _contenders(self, needs: Needs, regime: Regime) -> Field:
        return {p: self._contender(p, need, regime) for p, need in needs.items()}

    def _contender(self, precision: Precision, need: Traffic, regime: Regime) -> Contender:
        bottom = _floor_estimate(self._floors.of(need, regime))
        estimate = _above(bottom, self._estimate(precision, need, regime))
        return Contender(bottom, estimate, cache_fit(need.total_bytes, self._calibration))

    def _estimate(self, precision: Precision, need: Traffic, regime: Regime) -> Estimate | None:
        if regime is not Regime.IN_SITU:
            return self._estimator(need, precision, regime)
        warm = self._estimator(need, precision, Regime.WARM)
        cold = self._estimator(need, precision, Regime.COLD)
        if warm is None or cold is None:
            return None
        low, high = min(warm.low_us, cold.low_us), max(warm.high_us, cold.high_us)
        return Estimate(sqrt(warm.time_us * cold.time_us), low, high, cold.bound)

    def _totals(self, rows: Sequence[WorkloadAdvice]) -> list[StepTotal]:
        """One row for each regime and precision of a step."""
        tokens = _step_tokens(rows)
        found = []
        for i, regime in enumerate(self._regimes):
            for j, precision in enumerate(Precision):
                cells = [(row.layers or 1, row.regimes[i].formats[j]) for row in rows]
                estimate = _sum((n, c.estimate.time_us if c.estimate else None) for n, c in cells)
                bottom = _sum((n, c.floor.time_us if c.floor else None) for n, c in cells)
                found.append(StepTotal(tokens, regime, precision, estimate, bottom))
        return found


def _step_tokens(rows: Sequence[WorkloadAdvice]) -> int:
    return rows[-1].workload.tokens  # the head's: every token passes it


def _step_weights(rows: Sequence[WorkloadAdvice]) -> int:
    """Bytes of bf16 weights that a step reads, all layers."""
    return sum((r.layers or 1) * r.regimes[0].formats[0].weight_bytes for r in rows)


def _tokens_text(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _beyond_comparison(workloads: Sequence[WorkloadAdvice]) -> Iterator[str]:
    most = max((w.workload.tokens for w in workloads), default=0)
    if most > MOST_TOKENS_COMPARED:
        yield (
            f"{most:,} tokens: the latency model was compared with kernels of up to "
            f"{MOST_TOKENS_COMPARED} tokens; beyond, its bands are wide and unproven"
        )


def _dram_intensity(need: Traffic, fit: CacheFit, regime: Regime) -> float | None:
    """FLOP over the bytes that DRAM serves: the weights when cold, all of them beyond L2."""
    if regime is Regime.COLD:
        return need.flops / need.weight_bytes
    spills = regime is Regime.WARM and fit is CacheFit.SPILLS
    return need.flops / need.total_bytes if spills else None


def _floor_estimate(found: Floor | None) -> FloorEstimate | None:
    if found is None:
        return None
    return FloorEstimate(found.time_us, found.high_us, found.bound, found.basis, found.notes)


def _above(bottom: FloorEstimate | None, estimate: Estimate | None) -> Estimate | None:
    """The band without what lies under a measured floor: no kernel is expected there.

    An extrapolated floor is itself a guess (kernels have beaten those of the published constants
    by up to 18 %), so it cuts nothing off.
    """
    if bottom is None or estimate is None or bottom.basis is not Basis.MEASURED:
        return estimate
    us = bottom.time_us
    values = (estimate.time_us, estimate.low_us, estimate.high_us)
    time, low, high = (max(value, us) for value in values)
    return Estimate(time, low, high, estimate.bound)


def _sum(parts: Iterable[tuple[int, float | None]]) -> float | None:
    total = 0.0
    for count, value in parts:
        if value is None:
            return None
        total += count * value
    return total
