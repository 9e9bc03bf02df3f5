"""Why something was rejected stays: in the ledger, in what `show` says, in what is remembered."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from optimizer.study_samples import trial

from kernel_compass.optimizer.loop_answers import screened
from kernel_compass.optimizer.loop_book import Book
from kernel_compass.optimizer.loop_finals import _judged
from kernel_compass.records.execution import TaskEnd, TaskFailure
from kernel_compass.records.trial import Outcome, Reason
from kernel_compass.report.studies import _trial_text

NOTES = ("First crashed: SIGSEGV under load. Run again.",)
FAILURE = TaskFailure(Reason.RUN_TIMEOUT, "It ran for more than 60 s and was killed")


def test_a_failure_keeps_its_detail_and_what_came_before():
    proposal = trial(1).proposal
    end = TaskEnd("1", None, FAILURE, 1.0, "local/0", NOTES)
    work = SimpleNamespace(workload=SimpleNamespace(name="w"))
    finalist = SimpleNamespace(number=1, work=work, proposal=proposal)
    for found in (screened(1, "w", proposal, end, 0.02), _judged(finalist, end)):
        assert (found.reason, found.detail) == (Reason.RUN_TIMEOUT, FAILURE.detail)
        assert found.notes == NOTES
        assert FAILURE.detail in _trial_text(found)
        assert NOTES[0] in _trial_text(found)


@pytest.mark.parametrize("notes", [(), NOTES])
def test_a_rejection_without_a_word_gets_one(notes):
    kept = []
    ledger = SimpleNamespace(
        end=lambda one, *_: kept.append(one), recorded=SimpleNamespace(trials=(), pending=())
    )
    book = Book.__new__(Book)
    book.ledger, book._ended = ledger, {}
    bare = replace(
        trial(1), outcome=Outcome.REJECTED, reason=Reason.CRASHED, detail=" ", notes=notes
    )
    book.end(bare)
    assert kept[0].detail == (notes[0] if notes else "nothing but crashed was said")
