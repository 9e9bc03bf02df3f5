"""All strategies by the conformance suite, and that it finds strategies that are wrong."""

from __future__ import annotations

import importlib
import random
import sys
from importlib.util import find_spec

import pytest
from optimizer.search import strategy_conformance as suite

from kernel_compass.errors import MissingDependency, UsageError
from kernel_compass.optimizer.search.space_inputs import SpaceInputs
from kernel_compass.optimizer.search.strategies import NAMES, make_strategy

WITHOUT = "the strategy optuna needs Optuna (pip install optuna)"
EACH = [
    pytest.param(
        n, marks=pytest.mark.skipif(n == "optuna" and not find_spec("optuna"), reason=WITHOUT)
    )
    for n in NAMES
]


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda c: c.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", EACH)
@pytest.mark.filterwarnings("default")
def test_conforms(name, check):
    check(lambda inputs, seed: make_strategy(name, inputs, seed))


class Broken:
    """A strategy with one fault at a time."""

    name = "broken"

    def __init__(self, inputs, fault):
        self.left = list(range(len(inputs.configs)))
        self.fault = fault
        self.told = set()

    def ask(self, count):
        if self.fault == "draws anew":
            random.shuffle(self.left)
        if self.fault == "asks twice" and self.told:
            return (
                [next(iter(self.told))][: count and 1] if len(self.told) == 2 else self._next(count)
            )
        if self.fault == "stops at failures" and self.left == []:
            return []
        return self._next(count)

    def _next(self, count):
        got, self.left = self.left[:count], self.left[count:]
        return got

    def tell(self, index, time_us):
        if time_us is None and self.fault == "stops at failures":
            self.left = []
        if self.fault != "forgets what it is told" and index in self.left:
            self.left.remove(index)
        self.told.add(index)


@pytest.mark.parametrize(
    ("fault", "finds"),
    [
        ("draws anew", suite.check_is_deterministic),
        ("asks twice", suite.check_asks_everything_once),
        ("stops at failures", suite.check_bears_failures),
        ("forgets what it is told", suite.check_resumes),
        ("takes any time", suite.check_refuses),
        ("knows no equals", suite.check_equal_configurations),
    ],
)
def test_the_suite_finds_what_is_wrong(fault, finds):
    with pytest.raises((AssertionError, IndexError)):
        finds(lambda inputs, seed: Broken(inputs, fault))


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependency, match="pip install optuna"):
        make_strategy("optuna", SpaceInputs([{"a": 1}]))


def test_seeds_differ():
    inputs, times = suite.space(90)
    orders = {tuple(suite.drive(make_strategy("random", inputs, s), times, 10)) for s in range(5)}
    assert len(orders) == 5


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (lambda: SpaceInputs([{"a": 1}], [1.0, 2.0]), "2 estimates_us"),
        (lambda: SpaceInputs([{"a": 1}], [float("nan")]), "nan"),
        (lambda: SpaceInputs([{"a": 1}], [-1.0]), "-1.0"),
        (lambda: SpaceInputs([{"a": 1}], (), [{"registers": float("inf")}]), "registers"),
        (
            lambda: make_strategy("best", SpaceInputs([{"a": 1}])),
            "model, exhaustive, random, optuna",
        ),
        (lambda: make_strategy("model", SpaceInputs([{"a": 1}]), -1), "seed"),
    ],
)
def test_refuses(inputs, says):
    with pytest.raises(UsageError, match=says):
        inputs()


def test_a_family_that_is_wrongly_estimated_is_found_out():
    """The best family's estimates are three times too high, all of them: the others look better."""
    inputs, times = suite.space(288)
    wrong = [
        t * (3.0 if c["kernel"] == "mma" else 1.0)
        for c, t in zip(inputs.configs, times, strict=True)
    ]
    lying = SpaceInputs(inputs.configs, wrong)
    asked = suite.drive(make_strategy("model", lying, 0), times, 12)
    assert min(times[i] for i in asked) <= 1.03 * min(times)


def test_an_empty_space_has_nothing_to_ask():
    for name in ("model", "exhaustive", "random"):
        assert list(make_strategy(name, SpaceInputs([])).ask(3)) == []


def test_importing_needs_no_optuna():
    module = importlib.import_module("kernel_compass.optimizer.search.strategies")
    assert module.NAMES[0] == "model"
