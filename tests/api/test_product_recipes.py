"""Implementations as recipes, on the simulated device: what moves fewer bytes is faster cold."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch")

from kernel_compass.api.comparing import hold_out
from kernel_compass.api.product_recipes import product_recipe
from kernel_compass.records.comparison import Decision
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

BASELINE = Candidate("cublas_bf16", format="bf16")


def judged(workload, candidate):
    return hold_out(
        product_recipe(workload, BASELINE),
        product_recipe(workload, candidate),
        regimes=(Regime.COLD, Regime.WARM),
        pairs=12,
        device="simulated",
        seed=1,
    )


def test_fewer_bytes_win_in_fresh_processes_and_the_same_ones_do_not():
    workload = Workload(Op.BMM, 128, 16, 128, 2048)
    verdict = judged(workload, Candidate("own_decode", format="w8a16_fp8"))
    assert verdict.accepted
    by_regime = {one.regime: one for one in verdict.results}
    assert by_regime[Regime.COLD].speedup.estimate == pytest.approx(1.7, abs=0.3)
    same = judged(workload, BASELINE)
    assert not same.accepted
    assert all(one.decision is not Decision.FASTER for one in same.results)
