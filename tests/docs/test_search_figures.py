"""The figures of docs/optimize.md on the economy of search are those of the kept results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import search_economy

from kernel_compass.codec.recorded_space import read
from kernel_compass.records.profile import Regime

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks/results/h200"
TEXT = (ROOT / "docs/optimize.md").read_text()
ROWS = json.loads((KEPT / "search_economy.json").read_text())
UNSEEN = {r["space"]: r for r in json.loads((KEPT / "search_economy_held_out.json").read_text())}
MOST = 400


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["space"])
def test_each_row(row):
    op, sizes, _, regime = row["space"].split()
    unseen = UNSEEN[row["space"]]
    found = {**row["medians"], "unseen": unseen["medians"]["model"]}
    optuna = f"{found['optuna']:g}" + (" or more" if found["optuna"] >= MOST else "")
    cells = [
        f"{op} {sizes.replace('x', ' x ')}, {regime}",
        f"{row['near']} of {row['configs']}",
        *(f"{found[name]:g}" for name in ("model", "unseen", "random")),
        optuna,
    ]
    assert f"| {' | '.join(cells)} |" in TEXT
    assert row["held_out"] is ("14336" in row["space"])
    assert unseen["held_out"] is True
    assert unseen["medians"]["random"] == row["medians"]["random"]


def test_what_is_missed():
    counted = [r for r in ROWS if r["near_pct"] <= 1 and r["configs"] + r["pruned"] >= 400]
    missed = [
        r["space"]
        for r in counted
        if not r["medians"]["model"] <= min(25, r["medians"]["random"] / 4)
    ]
    assert len(counted) == 11
    assert missed == ["bmm 128x16x512x128 w8a16_fp8 cold"]
    assert "One of eleven\nmisses it: 128 x 16 x 512 x 128 cold" in TEXT


def test_how_far_behind_it_is_after_25():
    found = {}
    for file in sorted(search_economy.FOLDER.glob("*.json.gz")):
        space = read(file)
        for regime in (Regime.WARM, Regime.COLD):
            landscape = search_economy.of_recording(space, regime, False)
            found[landscape.name] = 100 * search_economy.behind(landscape, "model", 0, 25)
    missed = found.pop("bmm 128x16x512x128 w8a16_fp8 cold")
    assert f"the best found is {missed:.1f} % slower" in TEXT
    assert f"it is at most {max(found.values()):.1f} % slower by then" in TEXT


def test_the_machine():
    lines = TEXT.partition("## How many configurations it measures")[2]
    assert "one H200, driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0, 2026-12-02" in lines
