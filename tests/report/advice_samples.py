"""Advice made by hand; the numbers are like those of an H200."""

from __future__ import annotations

from kernel_compass.records.advice import (
    Advice,
    CacheFit,
    ErrorGuide,
    Estimate,
    FloorEstimate,
    FormatAdvice,
    RegimeAdvice,
    StepTotal,
    Verdict,
    WorkloadAdvice,
)
from kernel_compass.records.calibration import Basis
from kernel_compass.records.device import Device
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Precision, Workload

MIB = 1 << 20
FINE = (ErrorGuide("int8", 0.86), ErrorGuide("fp8", 2.6))
COARSE = (ErrorGuide("int8", 4.2), ErrorGuide("fp8", 5.7))
DEVICE = Device("NVIDIA H200", "9.0", 132, 60 * MIB)


def row(precision: Precision, floor_us: float, verdict: Verdict | None, **changes) -> FormatAdvice:
    values = {
        "precision": precision,
        "weight_bytes": 8 * MIB,
        "working_set_bytes": 9 * MIB,
        "fit": CacheFit.FITS,
        "floor": FloorEstimate(floor_us, None, "l2", Basis.MEASURED),
        "estimate": Estimate(floor_us * 1.3, floor_us, floor_us * 2, "l2"),
        "at_most": 5.0 / floor_us,
        "errors": FINE,
        "within_budget": None,
        "verdict": verdict,
        "reason": "" if verdict is None else "weights already in L2: at most 1.6x; because",
    }
    return FormatAdvice(**(values | changes))


def regime(which: Regime, w8a8: tuple[ErrorGuide, ...] = FINE) -> RegimeAdvice:
    guessed = FloorEstimate(2.3, 3.1, "dram", Basis.EXTRAPOLATED, ("below the smallest point",))
    return RegimeAdvice(
        which,
        (
            row(Precision.BF16, 3.9, None, errors=(ErrorGuide("bf16", 0.17),)),
            row(Precision.W8A16, 2.9, Verdict.CANNOT_TELL),
            row(Precision.W8A8, 2.9, Verdict.CANNOT_PAY, within_budget=False, errors=w8a8),
            row(Precision.W4A16, 2.3, Verdict.PAYS, floor=guessed, fit=CacheFit.EDGE),
        ),
    )


def one() -> Advice:
    workload = Workload(Op.BMM, 128, 1, 128, 512)
    regimes = (regime(Regime.WARM), regime(Regime.COLD))
    return Advice("h200", DEVICE, LaunchMode.GRAPH, (WorkloadAdvice(workload, regimes),))


def unknown() -> Advice:
    """Nothing could be said of it."""
    bare = row(
        Precision.BF16, 1.0, None, floor=None, estimate=None, at_most=None, fit=CacheFit.UNKNOWN
    )
    workload = WorkloadAdvice(
        Workload(Op.LINEAR, 1, 4, 64, 64), (RegimeAdvice(Regime.IN_SITU, (bare,)),)
    )
    notes = ("no estimates: the calibration has no warm read curve",)
    return Advice("poor", Device(), LaunchMode.GRAPH, (workload,), notes=notes)


def model() -> Advice:
    """Two batches of a model with experts."""
    rows, totals = [], []
    for tokens in (1, 16):
        named = (
            Workload(Op.BMM, 16, tokens, 128, 512, "q_absorb"),
            Workload(Op.BMM, 8 * tokens, 1, 7168, 512, "experts_gate_up"),
            Workload(Op.LINEAR, 1, tokens, 7168, 16160, "lm_head"),
        )
        for workload, layers in zip(named, (61, 58, 1), strict=True):
            experts = "tokens choose evenly" if "experts" in workload.name else None
            found = (regime(Regime.COLD, COARSE),)
            rows.append(WorkloadAdvice(workload, found, layers, "heads", experts))
        totals += [StepTotal(tokens, Regime.COLD, p, 3000.0, 2000.0) for p in Precision]
    return Advice(
        "h200", DEVICE, LaunchMode.GRAPH, tuple(rows), 3.0, "deepseek-v3", 8, tuple(totals)
    )


ALL = {"one": one, "unknown": unknown, "model": model}
