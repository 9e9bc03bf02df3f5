"""How well the latency model predicts this project's own H200 grid from six probes a kernel.

    python benchmarks/h200_accuracy.py [--grid FILE] [--calibration FILE] [--probes 6] [--json]

The grid is what `benchmarks/h200_grid.py` measured, the calibration what `kernel-compass calibrate`
measured on the same card. Six launches of each kernel, warm and cold ones together, are chosen
before any time is known; the score is over all the others, and over ten choices.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import PRIOR
from kernel_compass.analysis.latency import predict_many
from kernel_compass.analysis.latency_fit import Probe, fit_terms
from kernel_compass.analysis.probe_choice import choose_probes
from kernel_compass.analysis.traffic import traffic
from kernel_compass.codec.calibration_json import decode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Traffic, Workload

ROOT = Path(__file__).resolve().parents[1]
GRID = ROOT / "benchmarks" / "results" / "h200" / "h200_grid.json"
CALIBRATION = ROOT / "src" / "kernel_compass" / "calibrations" / "h200.json"
KERNELS = {
    Precision.BF16: PRIOR[Precision.BF16],
    Precision.W8A16: replace(PRIOR[Precision.W8A16], tile_tokens=(16, 64), weight_format="fp8"),
    Precision.W4A16: replace(PRIOR[Precision.W4A16], tile_tokens=(16, 64)),
}
"""What is known of the kernels without measuring: the rows of `bmm_kernels.tile`, and how they
convert weights. Of cuBLAS nothing is."""


@dataclass(frozen=True)
class Cell:
    """One measured launch."""

    traffic: Traffic
    regime: Regime
    time_us: float


def cells(rows: Sequence[dict], precision: Precision) -> list[Cell]:
    """Every launch of one kernel in the grid."""
    return [cell for row in rows if row["precision"] == precision for cell in _both(row)]


def _both(row: dict) -> Iterator[Cell]:
    shape = (row["heads"], row["tokens"], row["k"], row["n"])
    moved = traffic(Workload(Op.BMM, *shape), Precision(row["precision"]))
    for regime in (Regime.WARM, Regime.COLD):
        yield Cell(moved, regime, row[f"{regime.value}_us"])


def scores(known: Sequence[Cell], precision: Precision, ceilings: Ceilings, probes: int, seed: int):
    """Absolute errors in percent, and whether the band held, on the cells not probed."""
    prior = KERNELS[precision]
    cold = [c.regime is Regime.COLD for c in known]
    chosen = choose_probes([c.traffic for c in known], probes, seed, ceilings, prior, cold)
    taken = [Probe(known[i].traffic, known[i].regime, known[i].time_us) for i in chosen]
    terms = fit_terms(taken, ceilings, prior, leave_one_out=False).terms
    errors, inside = [], []
    for index, cell in enumerate(known):
        if index in chosen:
            continue
        found = predict_many([cell.traffic], terms, cell.regime, ceilings)[0]
        errors.append(100 * abs(found.time_us / cell.time_us - 1))
        inside.append(found.low_us <= cell.time_us <= found.high_us)
    return errors, inside


def measure(grid: Path, calibration: Path, probes: int, seeds: int) -> dict:
    """The scores of every kernel, and of all."""
    rows = json.loads(grid.read_text())["rows"]
    ceilings = Ceilings.of(decode(calibration.read_bytes()))
    result: dict = {"probes_per_kernel": probes, "seeds": seeds, "kernels": {}}
    pooled: list[float] = []
    for precision in dict.fromkeys(row["precision"] for row in rows):
        known = cells(rows, Precision(precision))
        found = [scores(known, Precision(precision), ceilings, probes, s) for s in range(seeds)]
        errors = [e for one, _ in found for e in one]
        result["kernels"][precision] = {
            "mape_pct": round(float(np.mean(errors)), 3),
            "p90_pct": round(float(np.quantile(errors, 0.9)), 3),
            "worst_choice_mape_pct": round(max(float(np.mean(e)) for e, _ in found), 3),
            "band_coverage_pct": round(100 * float(np.mean([i for _, j in found for i in j])), 2),
            "held_out_cells": len(known) - probes,
        }
        pooled += errors
    return result | {"mape_pct": round(float(np.mean(pooled)), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", type=Path, default=GRID)
    parser.add_argument("--calibration", type=Path, default=CALIBRATION)
    parser.add_argument("--probes", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.grid, args.calibration, args.probes, args.seeds)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for name, row in result["kernels"].items():
        print(f"{name:6} " + "  ".join(f"{k} {v}" for k, v in row.items()))
    print(f"all    mape_pct {result['mape_pct']}")


if __name__ == "__main__":
    main()
