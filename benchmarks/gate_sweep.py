"""The published gate sweep: its cells, its constants, and the models it is compared with."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.kernel_terms import PRIOR
from kernel_compass.analysis.latency import predict_many
from kernel_compass.analysis.latency_fit import Probe, fit_terms
from kernel_compass.analysis.probe_choice import choose_probes
from kernel_compass.analysis.traffic import traffic
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Traffic, Workload

PRECISIONS = (Precision.BF16, Precision.W8A8, Precision.W4A16)
TWO_WAY = (Precision.BF16, Precision.W8A8)
CONSTANTS = "portable_harness"
"""The set of constants that exists for every GPU, from timing-only microbenchmarks."""
Row = dict[str, str]


@dataclass(frozen=True, order=True)
class Cell:
    """One shape of the sweep."""

    heads: int
    tokens: int
    reduction: int
    columns: int


@dataclass(frozen=True)
class Sweep:
    gpus: tuple[str, ...]
    ceilings: dict[str, Ceilings]
    rows: dict[tuple[str, Precision], dict[Cell, Row]]

    def cells(self, gpu: str, precision: Precision) -> list[Cell]:
        return sorted(self.rows.get((gpu, precision), {}))

    def has(self, gpu: str, precision: Precision, cell: Cell) -> bool:
        return cell in self.rows.get((gpu, precision), {})

    def time(self, gpu: str, precision: Precision, cell: Cell) -> float:
        return float(self.rows[gpu, precision][cell]["latency_us"])

    def traffic(self, cell: Cell, precision: Precision) -> Traffic:
        shape = Workload(Op.BMM, cell.heads, cell.tokens, cell.reduction, cell.columns)
        return traffic(shape, precision)

    def weight_bf16_mib(self, cell: Cell) -> float:
        return cell.heads * cell.reduction * cell.columns * 2 / 2**20


def table(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as source:
        return list(csv.DictReader(source))


def read(data: Path) -> Sweep:
    rows: dict[tuple[str, Precision], dict[Cell, Row]] = {}
    for row in table(data / "gate_sweep.csv"):
        if not row["latency_us"]:  # not recorded
            continue
        cell = Cell(*(int(row[name]) for name in ("h", "m", "k", "n")))
        rows.setdefault((row["gpu"], Precision(row["precision"])), {})[cell] = row
    gpus = tuple(sorted({gpu for gpu, _ in rows}))
    constants = table(data / "calibration_params.csv")
    return Sweep(gpus, {gpu: ceilings(constants, gpu) for gpu in gpus}, rows)


def ceilings(constants: list[Row], gpu: str) -> Ceilings:
    """The harness's constants; a missing conversion rate (B300) from the GPU's other sets."""
    own = [row for row in constants if row["gpu"] == gpu]
    row = next(r for r in own if r["params_set"] == CONSTANTS)
    packed = next((r["r_dequant_tbs"] for r in (row, *own) if r["r_dequant_tbs"]), None)
    return Ceilings(
        c_eff_bytes=float(row["c_eff_mib"]) * 2**20,
        t0_us=float(row["t0_graph_us"]),
        bw_l2_tbs=float(row["bw_l2_tbs"]),
        bw_dram_tbs=float(row["bw_hbm_tbs"]),
        peak_tflops={"bf16": float(row["peak_tflops"])},
        # Published as packed bytes a second; a packed byte holds two weights.
        dequantization_tweights_s={"int4": 2 * float(packed)} if packed else None,
        sm_count=int(row["sm_count"]),
    )


Predicted = dict[Precision, dict[Cell, float]]


def hard_gate_lumped(sweep: Sweep, gpu: str) -> Predicted:
    """The study's model: t0 + max(all bytes at the level that the weights fit into, arithmetic[,
    conversion]); w8a8 pays a second launch that quantizes the activations.

    With the study's own constants it gives the study's published figures (A100, B200, B300).
    """
    top = sweep.ceilings[gpu]

    def memory_us(moved: Traffic) -> float:
        return moved.total_bytes / (_gated_tbs(moved, top) * 1e6)

    return _hard_gate(sweep, gpu, memory_us)


def hard_gate_split(sweep: Sweep, gpu: str) -> Predicted:
    """The same with activations and outputs always at DRAM."""
    top = sweep.ceilings[gpu]

    def memory_us(moved: Traffic) -> float:
        rest_us = (moved.activation_bytes + moved.output_bytes) / (top.bw_dram_tbs * 1e6)
        return moved.weight_bytes / (_gated_tbs(moved, top) * 1e6) + rest_us

    return _hard_gate(sweep, gpu, memory_us)


def _gated_tbs(moved: Traffic, top: Ceilings) -> float:
    return top.bw_l2_tbs if moved.weight_bytes <= top.c_eff_bytes else top.bw_dram_tbs


def study_predictions(sweep: Sweep, gpu: str) -> Predicted:
    """The study's own figures, as published beside each time."""
    return {
        p: {c: float(row["study_pred_us"]) for c, row in sweep.rows.get((gpu, p), {}).items()}
        for p in PRECISIONS
    }


def has_study_predictions(sweep: Sweep) -> bool:
    """Whether the study's figure stands beside every time."""
    return all(row.get("study_pred_us") for cells in sweep.rows.values() for row in cells.values())


def _hard_gate(sweep: Sweep, gpu: str, memory_us: Callable[[Traffic], float]) -> Predicted:
    top = sweep.ceilings[gpu]
    rate = (top.dequantization_tweights_s or {}).get("int4")

    def time_us(cell: Cell, precision: Precision) -> float:
        moved = sweep.traffic(cell, precision)
        convert = moved.dequantized_weights / (rate * 1e6) if rate else 0.0
        narrow = precision is Precision.W8A8
        arithmetic = moved.flops / (top.peak_tflops["bf16"] * (2 if narrow else 1) * 1e6)
        launches = top.t0_us * (2 if narrow else 1)
        # The activations are read at 16 bits and written at 8 in a launch of their own.
        quantize = 1.5 * moved.activation_bytes / (top.bw_dram_tbs * 1e6) if narrow else 0.0
        return launches + quantize + max(memory_us(moved), arithmetic, convert)

    return {p: {c: time_us(c, p) for c in sweep.cells(gpu, p)} for p in PRECISIONS}


def unseen_op(data: Path, sweep: Sweep, seed: int = 0) -> dict | None:
    """Dense projections, another op: predicted from the prior, and for the library bf16 product
    also from the terms that six probes of the batched product gave on the same GPU."""
    path = data / "dense_projection.csv"
    if not path.is_file():
        return None
    result: dict = {}
    for row in table(path):
        if row["precision"] not in tuple(Precision) or row["gpu"] not in sweep.gpus:
            continue
        precision = Precision(row["precision"])
        shape = Workload(Op.LINEAR, 1, int(row["m"]), int(row["k"]), int(row["n"]))
        regime = Regime.WARM if row["cache_state"] == "warm" else Regime.COLD
        here = result.setdefault(f"{row['gpu']} {precision.value} {regime.value}", [])
        here.append((row["gpu"], precision, traffic(shape, precision), regime, row["latency_us"]))
    return {name: _unseen_scores(rows, sweep, seed) for name, rows in sorted(result.items())}


def _unseen_scores(rows: list, sweep: Sweep, seed: int) -> dict:
    gpu, precision, _, regime, _ = rows[0]
    times = np.array([float(r[-1]) for r in rows])
    moved = [r[2] for r in rows]
    terms = {"prior": PRIOR[precision]}
    if precision is Precision.BF16:
        terms["bmm_probes"] = _bmm_terms(sweep, gpu, seed)
    scores: dict = {"rows": len(rows)}
    for name, known in terms.items():
        found = predict_many(moved, known, regime, sweep.ceilings[gpu])
        predicted = np.array([p.time_us for p in found])
        scores[f"mape_pct_from_{name}"] = round(100 * float(np.mean(abs(predicted / times - 1))), 2)
    return scores


def _bmm_terms(sweep: Sweep, gpu: str, seed: int):
    cells = sweep.cells(gpu, Precision.BF16)
    moved = [sweep.traffic(c, Precision.BF16) for c in cells]
    top = sweep.ceilings[gpu]
    probes = [
        Probe(moved[i], Regime.WARM, sweep.time(gpu, Precision.BF16, cells[i]))
        for i in choose_probes(moved, 6, seed, top, PRIOR[Precision.BF16])
    ]
    return fit_terms(probes, top, PRIOR[Precision.BF16], leave_one_out=False).terms
