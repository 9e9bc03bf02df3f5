"""How well the latency model predicts the published gate sweep from six probes.

    python benchmarks/model_accuracy.py --data DIR [--probes 6] [--seeds 10] [--json]

DIR holds gate_sweep.csv and calibration_params.csv (cells and constants of the cache-barrier
study, public repository zhan4808/cache-barrier, commit fe53b87). The program chooses six cells
per GPU and precision before it knows any time, fits the kernel's terms to them and is scored on
the other cells only; a decision between precisions counts only in cells that were probed for
none of them. Everything is averaged over the seeds; each seed chooses other probes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import gate_sweep
from gate_sweep import TWO_WAY, Cell, Sweep

from kernel_compass.analysis.kernel_terms import PRIOR, KernelTerms
from kernel_compass.analysis.latency import predict_many
from kernel_compass.analysis.latency_fit import Fit, Probe, fit_terms, population_prior
from kernel_compass.analysis.probe_choice import choose_probes
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Precision

Times = dict[Precision, dict[Cell, float]]
"""Predicted microseconds by precision and cell."""


@dataclass(frozen=True)
class Run:
    """One GPU under one seed: what was predicted, and where that may be scored."""

    predicted: Times
    probed: dict[Precision, set[Cell]]
    in_band: dict[Precision, dict[Cell, bool]]
    identified: dict[Precision, tuple[str, ...]]
    """The terms that the probes narrowed."""


@dataclass
class Tally:
    """Scores gathered cell by cell."""

    errors_pct: list[float]
    right: list[bool]
    regrets_pct: list[float]

    def add(self, other: Tally) -> None:
        self.errors_pct += other.errors_pct
        self.right += other.right
        self.regrets_pct += other.regrets_pct

    def summary(self) -> dict[str, float | None]:
        return {
            "mape_pct": mean(self.errors_pct),
            "decision_accuracy_pct": mean([100.0 * r for r in self.right]),
            "mean_regret_pct": mean(self.regrets_pct),
        }


def mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 3) if len(values) else None


def predict_sweep(
    sweep: Sweep, gpu: str, probes: int, seed: int, priors: dict[Precision, KernelTerms]
) -> Run:
    """Choose, fit and predict every precision of one GPU."""
    ceilings = sweep.ceilings[gpu]
    run = Run({}, {}, {}, {})
    for precision, prior in priors.items():
        cells = sweep.cells(gpu, precision)
        traffics = [sweep.traffic(cell, precision) for cell in cells]
        chosen = choose_probes(traffics, min(probes, len(cells)), seed, ceilings, prior)
        taken = [
            Probe(traffics[i], Regime.WARM, sweep.time(gpu, precision, cells[i])) for i in chosen
        ]
        fit = fit_terms(taken, ceilings, prior, leave_one_out=False)
        found = predict_many(traffics, fit.terms, Regime.WARM, ceilings)
        run.predicted[precision] = {c: p.time_us for c, p in zip(cells, found, strict=True)}
        run.identified[precision] = fit.identifiable
        run.probed[precision] = {cells[i] for i in chosen}
        run.in_band[precision] = {
            c: p.low_us <= sweep.time(gpu, precision, c) <= p.high_us
            for c, p in zip(cells, found, strict=True)
        }
    return run


def score(
    sweep: Sweep,
    gpu: str,
    times: Times,
    probed: dict[Precision, set[Cell]],
    options: Sequence[Precision] = TWO_WAY,
    errors_of: Iterable[Precision] = gate_sweep.PRECISIONS,
) -> Tally:
    """Errors on cells not probed in their precision; decisions on cells probed in no option."""
    tally = Tally([], [], [])
    for precision in errors_of:
        for cell in sweep.cells(gpu, precision):
            if cell not in probed[precision] and precision in times:
                actual = sweep.time(gpu, precision, cell)
                tally.errors_pct.append(100.0 * abs(times[precision][cell] / actual - 1))
    for cell in decidable(sweep, gpu, probed, options):
        actual = {p: sweep.time(gpu, p, cell) for p in options}
        best = min(actual.values())
        chosen = actual[min(options, key=lambda p: times[p][cell])]
        tally.right.append(chosen == best)
        tally.regrets_pct.append(100.0 * (chosen / best - 1))
    return tally


def decidable(
    sweep: Sweep, gpu: str, probed: dict[Precision, set[Cell]], options: Sequence[Precision]
) -> list[Cell]:
    cells = sweep.cells(gpu, options[0])
    return [c for c in cells if all(sweep.has(gpu, p, c) and c not in probed[p] for p in options)]


def policy(choice: Callable[[Sweep, str, Cell], Precision]) -> Callable[[Sweep, str], Times]:
    """A rule that only decides, in the form of times: the chosen one is the smaller."""

    def times(sweep: Sweep, gpu: str) -> Times:
        return {
            p: {c: 0.0 if choice(sweep, gpu, c) is p else 1.0 for c in sweep.cells(gpu, p)}
            for p in TWO_WAY
        }

    return times


def gate_rule(sweep: Sweep, gpu: str, cell: Cell) -> Precision:
    weights = sweep.weight_bf16_mib(cell) * 2**20
    quantize = weights > sweep.ceilings[gpu].c_eff_bytes and cell.tokens <= 32
    return Precision.W8A8 if quantize else Precision.BF16


MODELS: dict[str, Callable[[Sweep, str], Times]] = {
    "hard_gate_lumped": gate_sweep.hard_gate_lumped,
    "hard_gate_split": gate_sweep.hard_gate_split,
    "study_predictions": gate_sweep.study_predictions,
}
POLICIES: dict[str, Callable[[Sweep, str], Times]] = {
    "always_bf16": policy(lambda *_: Precision.BF16),
    "always_w8a8": policy(lambda *_: Precision.W8A8),
    "w8a8_above_c_eff_up_to_32_tokens": policy(gate_rule),
}


def baseline(sweep: Sweep, gpu: str, name: str, probed: dict[Precision, set[Cell]]) -> Tally:
    """A baseline on the very cells that the model is scored on."""
    if name in MODELS:
        return score(sweep, gpu, MODELS[name](sweep, gpu), probed)
    return score(sweep, gpu, POLICIES[name](sweep, gpu), probed, errors_of=())


def gpu_report(sweep: Sweep, gpu: str, runs: Sequence[Run]) -> tuple[dict, Tally, dict[str, Tally]]:
    model, three_way = Tally([], [], []), Tally([], [], [])
    others = {name: Tally([], [], []) for name in (*MODELS, *POLICIES)}
    for run in runs:
        model.add(score(sweep, gpu, run.predicted, run.probed))
        three_way.add(score(sweep, gpu, run.predicted, run.probed, gate_sweep.PRECISIONS))
        for name, tally in others.items():
            tally.add(baseline(sweep, gpu, name, run.probed))
    report = {
        **model.summary(),
        "mape_by_precision_pct": {
            p.value: mean(errors(sweep, gpu, runs, p)) for p in gate_sweep.PRECISIONS
        },
        "three_way": {k: v for k, v in three_way.summary().items() if k != "mape_pct"},
        "band_coverage_pct": mean(coverage(sweep, gpu, runs)),
        "cells": len(sweep.cells(gpu, Precision.BF16)),
        "decisions": len(model.right),
        "parameters": {
            "count": sum(len(PRIOR[p].names) for p in gate_sweep.PRECISIONS),
            "identified_pct_of_seeds": {
                p.value: identified(runs, p) for p in gate_sweep.PRECISIONS
            },
        },
        "baselines": {name: tally.summary() for name, tally in others.items()},
    }
    return report, model, others


def errors(sweep: Sweep, gpu: str, runs: Sequence[Run], precision: Precision) -> list[float]:
    return [
        e
        for run in runs
        for e in score(sweep, gpu, run.predicted, run.probed, errors_of=[precision]).errors_pct
    ]


def identified(runs: Sequence[Run], precision: Precision) -> dict[str, float | None]:
    """How often the probes narrowed each fitted term."""
    return {
        name: mean([100.0 * (name in run.identified[precision]) for run in runs])
        for name in PRIOR[precision].names
    }


def coverage(sweep: Sweep, gpu: str, runs: Sequence[Run]) -> list[float]:
    return [
        100.0 * inside
        for run in runs
        for precision, cells in run.in_band.items()
        for cell, inside in cells.items()
        if cell not in run.probed[precision]
    ]


def leave_one_gpu_out(sweep: Sweep, probes: int, seeds: int) -> dict:
    """Terms learnt on every row of the other GPUs as the prior of the left-out one."""
    whole = {(g, p): whole_fit(sweep, g, p) for g in sweep.gpus for p in gate_sweep.PRECISIONS}
    result = {}
    for gpu in sweep.gpus:
        priors = {
            p: population_prior([whole[g, p] for g in sweep.gpus if g != gpu], PRIOR[p])
            for p in gate_sweep.PRECISIONS
        }
        result[gpu] = {}
        for count in (0, probes):
            tally = Tally([], [], [])
            for seed in range(seeds if count else 1):
                run = predict_sweep(sweep, gpu, count, seed, priors)
                tally.add(score(sweep, gpu, run.predicted, run.probed))
            result[gpu][f"{count}_probes"] = tally.summary()
    return result


def whole_fit(sweep: Sweep, gpu: str, precision: Precision) -> Fit:
    cells = sweep.cells(gpu, precision)
    known = [
        Probe(sweep.traffic(c, precision), Regime.WARM, sweep.time(gpu, precision, c))
        for c in cells
    ]
    return fit_terms(known, sweep.ceilings[gpu], PRIOR[precision], leave_one_out=False)


def measure(data: Path, probes: int, seeds: int) -> dict:
    sweep = gate_sweep.read(data)
    if not gate_sweep.has_study_predictions(sweep):
        MODELS.pop("study_predictions", None)
    priors = {p: PRIOR[p] for p in gate_sweep.PRECISIONS}
    gpus, pooled = {}, Tally([], [], [])
    pooled_others = {name: Tally([], [], []) for name in (*MODELS, *POLICIES)}
    for gpu in sweep.gpus:
        runs = [predict_sweep(sweep, gpu, probes, seed, priors) for seed in range(seeds)]
        gpus[gpu], tally, others = gpu_report(sweep, gpu, runs)
        pooled.add(tally)
        for name, other in others.items():
            pooled_others[name].add(other)
    return {
        "probes_per_gpu_and_precision": probes,
        "seeds": seeds,
        "gpus": gpus,
        "pooled": {
            **pooled.summary(),
            "baselines": {name: tally.summary() for name, tally in pooled_others.items()},
        },
        "leave_one_gpu_out": leave_one_gpu_out(sweep, probes, seeds),
        "unseen_op": gate_sweep.unseen_op(data, sweep),
    }


def table(result: dict) -> str:
    lines = [
        f"{'':14}{'MAPE %':>8}{'bf16':>7}{'w8a8':>7}{'w4a16':>7}{'right %':>9}{'regret %':>10}"
        f"{'band %':>8}"
    ]
    for gpu, row in result["gpus"].items():
        by = "".join(f"{row['mape_by_precision_pct'][p.value]:7.2f}" for p in gate_sweep.PRECISIONS)
        lines.append(f"{gpu:14}{_three(row, by)}{row['band_coverage_pct']:8.1f}")
    lines.append(f"{'pooled':14}{_three(result['pooled'], ' ' * 21)}")
    lines.append("\nbaselines, pooled over the same cells")
    lines += [f"{name:35}{_three(row)}" for name, row in result["pooled"]["baselines"].items()]
    lines.append("\nleave one GPU out")
    for gpu, row in result["leave_one_gpu_out"].items():
        lines += [f"{gpu:14}{count:10}{_three(scores)}" for count, scores in row.items()]
    lines.append("\nunseen op, dense projections: MAPE %")
    lines += [f"{name:28}{scores}" for name, scores in (result["unseen_op"] or {}).items()]
    return "\n".join(lines)


def _three(row: dict, between: str = "") -> str:
    mape = "-" if row["mape_pct"] is None else f"{row['mape_pct']:.2f}"
    return f"{mape:>8}{between}{row['decision_accuracy_pct']:9.2f}{row['mean_regret_pct']:10.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--probes", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(arguments.data, arguments.probes, arguments.seeds)
    print(json.dumps(result, indent=2) if arguments.json else table(result))


if __name__ == "__main__":
    main()
