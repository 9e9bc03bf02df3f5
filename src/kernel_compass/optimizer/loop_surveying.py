"""Before screens: what the baselines of a problem's file consist of, for rules about the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_compass.codec.canonical import reshaped
from kernel_compass.optimizer.loop_book import Book
from kernel_compass.optimizer.loop_setup import LoopSetup, ends_of
from kernel_compass.optimizer.loop_work import Work
from kernel_compass.optimizer.proposers.findings import Findings
from kernel_compass.records.baseline_survey import BaselineSurvey
from kernel_compass.records.loop_contracts import Executor

ANSWER = "survey"
"""What a resumed run finds it by."""


def survey_baselines(
    setup: LoopSetup,
    executor: Executor,
    book: Book,
    works: Sequence[Work],
    findings: Findings,
    say: Callable[[str], None],
) -> None:
    """Fill `findings.surveys`; say of each workload what is not proposed for its baseline, and why.

    Of built-in products nothing is asked: their one operator is what all else stands in for.
    """
    if setup.request.source.sha256 is None or not works:
        return
    known = book.answer(ANSWER)
    if known is None:
        known = _asked(setup, executor, works)
        book.keep_answer(ANSWER, known)
    for work in works:
        name = work.workload.name
        row = known.get(name, {"unavailable": "it was not looked at"})
        if "unavailable" in row:
            say(f"{name}: what its baseline consists of is not known: {row['unavailable']}")
            continue
        survey = findings.surveys[name] = reshaped(row["survey"], BaselineSurvey)
        for what, why in (("fusion", survey.no_fusion), ("graph capture", survey.no_graph)):
            if why is not None:
                say(f"{name}: {what} of its baseline is not proposed: {why}")


def _asked(
    setup: LoopSetup, executor: Executor, works: Sequence[Work]
) -> dict[str, Mapping[str, Any]]:
    tasks = [setup.tasks.survey(work.workload) for work in works]
    names = {task.identifier: work.workload.name for task, work in zip(tasks, works, strict=True)}
    found: dict[str, Mapping[str, Any]] = {}
    for end in ends_of(executor, tasks):
        detail = end.failure.detail if end.failure else "no answer"
        name = names[end.identifier]
        found[name] = {"unavailable": detail} if end.answer is None else dict(end.answer)
    return found
