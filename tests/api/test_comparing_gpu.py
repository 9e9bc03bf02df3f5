"""Hold-out and cold check on a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.records.comparison import Decision, Rejection, Rule

RECIPES = Path(__file__).parent.parent / "measurement" / "gpu_recipes.py"


@pytest.mark.gpu
def test_half_of_the_work_is_confirmed_in_fresh_processes_and_the_same_is_not():
    whole, half = api.Recipe(f"{RECIPES}:bmm"), api.Recipe(f"{RECIPES}:half")
    three = Rule(hold_out_processes=3)
    better = api.hold_out(whole, half, pairs=20, rule=three, verify=False)
    assert better.accepted
    assert all(1.15 < result.speedup.estimate < 1.8 for result in better.results)
    same = api.hold_out(whole, whole, pairs=20, rule=three, verify=False)
    assert same.rejection is Rejection.NOT_FASTER
    assert all(result.decision is Decision.EQUIVALENT for result in same.results)


@pytest.mark.ncu
def test_a_rotated_launch_reads_its_weights_from_dram():
    found = api.verify_cold(api.Recipe(f"{RECIPES}:bmm"))
    assert found.cold, found.reason
    assert 0.95 < found.dram_share < 1.2
