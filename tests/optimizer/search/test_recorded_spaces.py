"""How soon `model` finds a good configuration in spaces that were measured whole on an H200."""

from __future__ import annotations

import json
from functools import cache

import pytest
import search_economy

from kernel_compass.analysis.config_constants import H200
from kernel_compass.codec.recorded_space import read
from kernel_compass.records.profile import Regime

FOLDER = search_economy.FOLDER
SPACES = {file.name: read(file) for file in sorted(FOLDER.glob("*.json.gz"))}
HELD_OUT = json.loads((FOLDER.parent / "config_constants_held_out.json").read_text())
"""Of fits that left a space's shape out of all files."""
SEEDS = 3
MISSED = {"bmm 128x16x512x128 w8a16_fp8 cold"}
"""Two configurations of 667 are within 3 %; what the strategy stays at is 3.3 % slower."""
EACH = [(name, regime) for name in SPACES for regime in (Regime.WARM, Regime.COLD)]
IDS = [f"{name.removesuffix('.json.gz')} {regime.value}" for name, regime in EACH]


@cache
def row(name, regime):
    landscape = search_economy.of_recording(SPACES[name], regime, False, H200)
    return search_economy.row_of(landscape, ("model", "random"), SEEDS, 400)


def test_the_spaces_are_those_that_count():
    verdicts = [search_economy.verdict(row(*one)) for one in EACH]
    assert len(verdicts) - verdicts.count("not counted") == 11


@pytest.mark.parametrize(("name", "regime"), EACH, ids=IDS)
def test_few_configurations_are_measured(name, regime):
    found = row(name, regime)
    share = 2 if found.space in MISSED else 4
    assert found.medians["model"] <= found.medians["random"] / share
    if search_economy.verdict(found) != "not counted":
        assert (found.medians["model"] <= 25) is (found.space not in MISSED)


@pytest.mark.parametrize(("name", "regime"), EACH, ids=IDS)
def test_so_it_is_on_a_shape_that_nothing_was_fitted_to(name, regime):
    """The missed one is less than half of what chance would take, no more."""
    landscape = search_economy.of_recording(SPACES[name], regime, True, HELD_OUT[name])
    found = search_economy.row_of(landscape, ("model",), SEEDS, 400).medians["model"]
    share = 2 if landscape.name in MISSED else 4
    assert found <= row(name, regime).medians["random"] / share
    if landscape.name not in MISSED:
        assert found <= 25
