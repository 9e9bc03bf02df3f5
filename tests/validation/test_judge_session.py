"""What the judge does around a call: it waits for operands, and counts the call's own work."""

from __future__ import annotations

import gc
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner, honest  # noqa: E402
from kernel_compass.validation.judge import judge  # noqa: E402
from kernel_compass.validation.judge_contracts import Effort  # noqa: E402
from kernel_compass.validation.machines import CpuMachine  # noqa: E402
from kernel_compass.validation.op_record import work_of  # noqa: E402
from kernel_compass.validation.self_test_problem import SelfTestProblem  # noqa: E402
from kernel_compass.validation.watch import Watch  # noqa: E402


class Recording(CpuMachine):
    """Notes what it is asked for."""

    def __init__(self, seen):
        super().__init__(torch)
        self.seen = seen

    def synchronize(self):
        self.seen.append("waited")

    def poison(self, sizes):
        self.seen.append("poisoned")
        super().poison(sizes)


def test_operands_are_there_before_a_watched_call_and_results_after_it():
    problem, seen = SelfTestProblem(torch), []

    def make():
        right = honest(torch, problem)

        def function(x, w):
            seen.append("called")
            return right(x, w)

        return FunctionRunner(function)

    effort = Effort(seeds=1, repeats=2, settle_s=0.0)
    found = judge(torch, problem, problem.workload, make, Recording(seen), Watch(torch), effort)
    assert found.reason is None, found.detail
    calls = [i for i, what in enumerate(seen) if what == "poisoned"]
    assert len(calls) > 10
    for i in calls:
        assert seen[i : i + 4] == ["poisoned", "waited", "called", "waited"]


@pytest.fixture
def collecting_all_the_time():
    def callback(phase, info):
        return None

    thresholds = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(callback)


def test_collections_are_no_work_of_a_call(collecting_all_the_time):
    def call():
        return [[i] for i in range(100)]

    assert not [name for name in work_of(torch, call) if "callback" in name]
    assert gc.isenabled()


def test_collection_stays_off_where_it_was_off():
    gc.disable()
    try:
        work_of(torch, list)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_l2_that_is_set_aside_is_a_change():
    sizes = [11 << 20, 11 << 20, 40 << 20]
    watch = Watch(torch, lambda: sizes.pop(0))
    assert watch.changed() is None
    found = watch.changed()
    assert found.reason is Reason.CHANGES_STATE
    assert found.detail.startswith("It changed the L2 carve-out from 11534336 to 41943040,")


def test_states_without_a_text_are_not_told_apart_by_one(monkeypatch):
    watch = Watch(torch)
    monkeypatch.setattr(sys, "getprofile", lambda: print)
    assert watch.changed().detail == "It changed tracing, for all that runs after it."
