"""The memory of rejected ideas: found again for the same idea alone, forgotten when asked."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import time
from dataclasses import replace

import pytest
from optimizer.study_samples import H200, proposal, trial

from kernel_compass.errors import StudyError, UsageError
from kernel_compass.optimizer import ledger_memory
from kernel_compass.optimizer.ledger_memory import NOT_KEPT, RejectionMemory
from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.profile import Regime
from kernel_compass.records.rejected import Idea
from kernel_compass.records.trial import Reason

IDEA = Idea(
    proposal().candidate,
    "bmm 16x1x128x512",
    H200,
    (Regime.COLD, Regime.WARM),
    {"torch": "2.9.0", "triton": "3.6.0", "driver": "580", "kernel_compass": "0.1.0"},
    "ab" * 32,
)
OTHERS = [
    replace(IDEA, candidate=proposal(128).candidate),
    replace(IDEA, candidate=replace(IDEA.candidate, format="bf16")),
    replace(IDEA, workload="bmm 16x2x128x512"),
    replace(IDEA, gpu=GpuModel("NVIDIA H200", "9.0", 66)),
    replace(IDEA, regimes=(Regime.COLD,)),
    replace(IDEA, versions={**IDEA.versions, "triton": "3.6.1"}),
    replace(IDEA, versions={**IDEA.versions, "driver": None}),
    replace(IDEA, source_sha256="cd" * 32),
    replace(IDEA, error_budget_pct=3.0),
    replace(IDEA, minimum_effect=0.02),
]


@pytest.fixture
def memory(tmp_path):
    return RejectionMemory(tmp_path / "deep" / "rejected.sqlite")


def test_the_same_idea_is_recalled_and_no_other(memory):
    assert memory.recall(IDEA) is None and not memory.path.exists()
    assert memory.remember(IDEA, trial(4, reason=Reason.WRONG_RESULT), "study-a")
    found = memory.recall(replace(IDEA, regimes=(Regime.WARM, Regime.COLD)))
    assert (found.reason, found.study, found.trial) == (Reason.WRONG_RESULT, "study-a", 4)
    assert found.idea == IDEA
    assert all(memory.recall(one) is None for one in OTHERS)


def test_every_other_reason_is_kept_as_it_was(memory):
    reasons = sorted(set(Reason) - NOT_KEPT)
    for number, reason in enumerate(reasons, 1):
        idea = replace(IDEA, workload=f"bmm {number}x2x128x512")
        assert memory.remember(idea, trial(number, reason=reason), "study-a")
        assert memory.recall(idea).reason is reason
    assert [one.reason for one in RejectionMemory(memory.path).all()] == reasons
    assert {Reason.LOOKS_AT_THE_JUDGE, Reason.SANITIZER} <= set(reasons)
    assert {Reason.CANCELLED, Reason.TOOL_FAILED} <= NOT_KEPT


@pytest.mark.parametrize("reason", sorted(NOT_KEPT))
def test_what_says_nothing_of_the_idea_is_not_kept(memory, reason):
    assert not memory.remember(IDEA, trial(reason=reason), "s")
    assert memory.recall(IDEA) is None


def test_an_acceptance_forgets_the_rejection(memory):
    memory.remember(IDEA, trial(), "s")
    assert not memory.remember(IDEA, trial(accepted=True), "s")
    assert memory.recall(IDEA) is None


def test_forgetting_takes_all_that_is_given(memory):
    for number, idea in enumerate([IDEA, *OTHERS], 1):
        memory.remember(idea, trial(number), f"study-{number % 2}")
    assert memory.forget(workload="bmm 16x2x128x512", implementation="nobody") == 0
    assert memory.forget(workload="bmm 16x2x128x512") == 1
    assert memory.forget(study="study-1") == 6  # every other one of eleven, from the first
    for wrong in ({}, {"everything": True, "study": "x"}):
        with pytest.raises(UsageError):
            memory.forget(**wrong)
    assert memory.forget(everything=True) == len(OTHERS) + 1 - 1 - 6
    assert memory.all() == ()


def remember_many(path, first):
    for number in range(first, first + 20):
        idea = replace(IDEA, workload=f"w{number}")
        RejectionMemory(path).remember(idea, trial(number), "s")


def test_several_runs_remember_at_once(memory):
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=remember_many, args=(memory.path, n)) for n in (1, 21, 41)]
    [one.start() for one in runs]
    [one.join(60) for one in runs]
    assert [one.exitcode for one in runs] == [0, 0, 0]
    assert len(memory.all()) == 60


def test_damage_is_found_or_harmless_and_nothing_is_overwritten(memory):
    for number in range(1, 20):
        memory.remember(replace(IDEA, workload=f"w{number}"), trial(number), "s")
    said, whole, chance = memory.all(), memory.path.read_bytes(), random.Random(5)
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        memory.path.write_bytes(data)
        try:
            assert RejectionMemory(memory.path).all() == said
        except StudyError as error:
            assert error.remedy
        assert memory.path.read_bytes() == data


def test_the_whole_file_is_looked_through_once_as_long_as_it_is_the_same(memory, monkeypatch):
    """It takes time with the number of rows, and a recall comes before every screen."""
    memory.remember(IDEA, trial(1), "s")
    asked, connect = [], sqlite3.connect

    def traced(*words, **named):
        connection = connect(*words, **named)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(ledger_memory.sqlite3, "connect", traced)
    other = RejectionMemory(memory.path)
    for number in range(3):
        assert other.recall(IDEA) is not None
        other.remember(replace(IDEA, workload=f"w{number}"), trial(1), "s")
    assert sum("integrity_check" in text for text in asked) == 1
    time.sleep(0.02)  # longer than a file's time is coarse
    memory.remember(replace(IDEA, workload="by another"), trial(1), "s")
    asked.clear()
    assert other.recall(IDEA) is not None
    assert sum("integrity_check" in text for text in asked) == 1


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + bytes(4080)])
def test_another_file_is_refused(memory, content):
    memory.path.parent.mkdir()
    memory.path.write_bytes(content)
    for door in (memory.all, lambda: memory.remember(IDEA, trial(), "s")):
        with pytest.raises(StudyError):
            door()
    assert memory.path.read_bytes() == content
