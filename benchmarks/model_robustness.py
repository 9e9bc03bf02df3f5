"""Do the latency model's figures hang on its stated constants, or on which cells are there?

    python benchmarks/model_robustness.py --data DIR [--seeds 5]

Repeats benchmarks/model_accuracy.py with every constant and prior 30 % lower and higher (the
capacity prior 10 %), with other probe counts, and on random halves of the cells. One line each:
error by GPU, decisions and regret pooled, and the most that a GPU's regret lies above its best
constant policy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import gate_sweep
from gate_sweep import Sweep
from model_accuracy import Tally, baseline, predict_sweep, score

from kernel_compass.analysis import (
    latency,
    latency_curve,
    latency_fit,
    latency_residual,
    probe_choice,
)
from kernel_compass.analysis.kernel_terms import PRIOR, KernelTerms, Term
from kernel_compass.records.workload import Precision

MODULES = (latency, latency_curve, latency_fit, latency_residual, probe_choice)
CONSTANTS = (
    "SMOOTH",
    "TILE",
    "NOISE",
    "SMOOTH_OCTAVES",
    "TILE_OCTAVES",
    "TRANSITION_WIDTH",
    "OVERLAP",
    "LOOKED_AT",
)
Priors = dict[Precision, KernelTerms]


@contextmanager
def constant(name: str, factor: float) -> Iterator[None]:
    """The constant times the factor in every module that uses it."""
    holders = [m for m in MODULES if hasattr(m, name)]
    before = getattr(holders[0], name)
    scaled = tuple(v * factor for v in before) if isinstance(before, tuple) else before * factor
    for module in holders:
        setattr(module, name, scaled)
    try:
        yield
    finally:
        for module in holders:
            setattr(module, name, before)


def priors(change: Callable[[str, Term], Term] = lambda _, term: term, choice: float = 1) -> Priors:
    changed = {}
    for precision in gate_sweep.PRECISIONS:
        terms = PRIOR[precision]
        terms = replace(terms, shape_choice_sd=terms.shape_choice_sd * choice)
        for name, term in PRIOR[precision].items():
            terms = replace(terms, **{name: change(name, term)})
        changed[precision] = terms
    return changed


def line(label: str, sweep: Sweep, seeds: int, believed: Priors, probes: int = 6) -> str:
    pooled, shown, behind = Tally([], [], []), [], -np.inf
    for gpu in sweep.gpus:
        tally, constants = Tally([], [], []), (Tally([], [], []), Tally([], [], []))
        for seed in range(seeds):
            run = predict_sweep(sweep, gpu, probes, seed, believed)
            tally.add(score(sweep, gpu, run.predicted, run.probed))
            for name, one in zip(("always_bf16", "always_w8a8"), constants, strict=True):
                one.add(baseline(sweep, gpu, name, run.probed))
        pooled.add(tally)
        shown.append(f"{gpu} {np.mean(tally.errors_pct):5.2f}")
        if tally.regrets_pct:
            best = min(float(np.mean(one.regrets_pct)) for one in constants)
            behind = max(behind, float(np.mean(tally.regrets_pct)) - best)
    return (
        f"{label:34}{'  '.join(shown)}  right {100 * np.mean(pooled.right):6.2f}"
        f"  regret {np.mean(pooled.regrets_pct):6.3f}  behind {behind:5.2f}"
    )


def halves(sweep: Sweep, split: int) -> list[Sweep]:
    """Two sweeps that share no cell; all precisions of a GPU are split alike."""
    rng = np.random.default_rng(split)
    rows: list[dict] = [{}, {}]
    for gpu in sweep.gpus:
        cells = sweep.cells(gpu, Precision.BF16)
        first = {cells[i] for i in rng.permutation(len(cells))[: len(cells) // 2]}
        for precision in gate_sweep.PRECISIONS:
            for cell, row in sweep.rows[gpu, precision].items():
                side = rows[0 if cell in first else 1]
                side.setdefault((gpu, precision), {})[cell] = row
    return [Sweep(sweep.gpus, sweep.ceilings, side) for side in rows]


def lines(sweep: Sweep, seeds: int) -> Iterator[str]:
    yield line("as it is", sweep, seeds, priors())
    for factor in (0.7, 1.3):
        for name in CONSTANTS:
            with constant(name, factor):
                yield line(f"{name} x {factor}", sweep, seeds, priors())
        yield line(f"shape choice x {factor}", sweep, seeds, priors(choice=factor))
        wider = priors(lambda _, t, f=factor: Term(t.value, t.log_sd * f))
        yield line(f"width of every prior x {factor}", sweep, seeds, wider)
        for name in ("launches", "l2_efficiency", "dram_efficiency", "math_efficiency"):
            moved = priors(
                lambda n, t, f=factor, k=name: Term(t.value * (f if n == k else 1), t.log_sd)
            )
            yield line(f"prior {name} x {factor}", sweep, seeds, moved)
    for factor in (0.9, 1.1):
        moved = priors(
            lambda n, t, f=factor: Term(t.value * (f if n == "capacity_ratio" else 1), t.log_sd)
        )
        yield line(f"prior capacity_ratio x {factor}", sweep, seeds, moved)
    for count in (4, 5, 8):
        yield line(f"{count} probes", sweep, seeds, priors(), count)
    for split in range(4):
        for number, half in enumerate(halves(sweep, split)):
            yield line(f"random half {split}.{number}", half, seeds, priors())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    for text in lines(gate_sweep.read(arguments.data), arguments.seeds):
        print(text, flush=True)


if __name__ == "__main__":
    main()
