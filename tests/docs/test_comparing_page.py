"""The tables of docs/comparing.md are what the simulation gives."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from comparison_power import SEED, compare, ratio
from noise_models import MADE_UP

from kernel_compass.records.comparison import Decision, Rule

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "comparing.md").read_text(encoding="utf-8")
RUNS = 300


def row(start: str) -> list[str]:
    (found,) = re.findall(rf"^\| {re.escape(start)} \| (.*) \|$", TEXT, re.MULTILINE)
    return [cell.strip() for cell in found.split("|")]


@pytest.mark.parametrize(("noise", "effect"), [("usual", 3.0), ("rough", 3.0), ("usual", 0.0)])
def test_operating_characteristics(noise: str, effect: float) -> None:
    rng = np.random.default_rng(SEED)
    found = [compare(MADE_UP[noise], Rule(), ratio(effect), rng).decision for _ in range(RUNS)]
    faster, slower, equivalent, undecided = map(float, row(f"{noise} | {effect}")[:4])
    for decision, stated in (
        (Decision.FASTER, faster),
        (Decision.SLOWER, slower),
        (Decision.EQUIVALENT, equivalent),
        (Decision.UNDECIDED, undecided),
    ):
        share = stated / 100
        allowed = 4 * (share * (1 - share) / RUNS) ** 0.5 + 0.005
        assert found.count(decision) / RUNS == pytest.approx(share, abs=allowed)


def test_defaults() -> None:
    rule = dataclasses.asdict(Rule())
    for name in ("minimum_effect", "alpha", "hold_out_alpha", "noninferiority_margin"):
        assert row(f"`{name}`")[0].startswith(f"{rule[name]:g}"), name
    assert row("`looks`")[0] == ", ".join(map(str, rule["looks"])) + " pairs"
    assert row("`spending_power`")[0] == f"{rule['spending_power']:g}"


def test_decisions_are_explained() -> None:
    assert all(f"| `{decision}` |" in TEXT for decision in Decision)
