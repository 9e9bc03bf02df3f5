"""Before screens: compile what the search would ask first, and drop what cannot be good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.optimizer.loop_book import Book
from kernel_compass.optimizer.loop_screening import Work, line_of
from kernel_compass.optimizer.loop_setup import LoopSetup, ends_of
from kernel_compass.optimizer.proposers.predicting import candidate_of
from kernel_compass.optimizer.search.prune import (
    LIMITS,
    Compiled,
    Dropped,
    Limits,
    Verdict,
    features,
    prune,
)
from kernel_compass.optimizer.space_heads import head, only
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Action, Proposal, Reason, Trial

ANSWER = "static"
"""What a resumed run finds the compiled ones by."""
LEAST_S, MOST_S = 5.0, 60.0
"""Seconds for compiling: under the first nothing is begun."""
REASONS: Mapping[Dropped, Reason] = {
    Dropped.DOES_NOT_COMPILE: Reason.BUILD_FAILED,
    Dropped.SHARED_MEMORY: Reason.DOES_NOT_FIT,
    Dropped.REGISTERS: Reason.DOES_NOT_FIT,
    Dropped.THREADS: Reason.DOES_NOT_FIT,
    Dropped.SPILLS: Reason.REGISTER_SPILLS,
    Dropped.OCCUPANCY: Reason.LOW_OCCUPANCY,
}

Say = Callable[[str, Trial | None], None]


@dataclass(frozen=True)
class _Head:
    """Part of a space that is compiled."""

    work: Work
    place: int
    """Of the space, in the workload's."""
    indices: tuple[int, ...]

    @property
    def space(self) -> CandidateSpace:
        """The whole."""
        return self.work.spaces[self.place]


def prune_spaces(
    setup: LoopSetup,
    executor: Executor,
    book: Book,
    works: Sequence[Work],
    say: Say,
) -> None:
    """Take out of the workloads' spaces what a compilation of their heads rules out.

    What was compiled is kept for a resumed run, which asks for the same again: figures are
    remembered by who compiles.

    Args:
        setup: how many of a space, and what share of the minutes.
        executor: compiles, in one task for all.
        book: what is dropped is recorded there, as trials that were not run.
        works: their spaces are replaced.
        say: told what is done.
    """
    if setup.options.static < 1:
        return
    known = book.answer(ANSWER)
    heads = _heads(setup, works) if known is None else _heads_again(works, known)
    budget_s = budget_of(setup)
    if not heads:
        return
    if known is None and budget_s < LEAST_S:
        say(f"nothing is compiled beforehand: {budget_s:.0f} s would be all there is for it", None)
        return
    if known is None:
        count = sum(len(one.indices) for one in heads)
        say(
            f"compiling up to {count} of the most promising, {budget_s:.0f} s at most; none is run",
            None,
        )
    answer = _asked(setup, executor, heads, budget_s if known is None else MOST_S)
    if "unavailable" in answer:
        say(f"nothing was compiled beforehand: {answer['unavailable']}", None)
        return
    compiled = [_known(one, row) for one, row in zip(heads, answer["compiled"], strict=True)]
    if known is None:
        kept = [(h, c) for h, c in zip(heads, compiled, strict=True) if c]
        book.keep_answer(ANSWER, [_kept(one, found) for one, found in kept])
    limits = LIMITS[_capability(answer)]
    for work in works:
        own = [(h, c) for h, c in zip(heads, compiled, strict=True) if h.work is work and c]
        _prune(work, own, limits, book, say)


def budget_of(setup: LoopSetup) -> float:
    """Seconds that compiling may take."""
    minutes = setup.request.limits.minutes
    return MOST_S if minutes is None else min(60 * minutes * setup.options.static_share, MOST_S)


def _heads(setup: LoopSetup, works: Sequence[Work]) -> list[_Head]:
    count = setup.options.static
    return [
        _Head(work, place, tuple(head(space, count)))
        for work in works
        for place, space in enumerate(work.spaces)
        if work.workload.product is not None and space.format is not None
    ]


def _heads_again(works: Sequence[Work], known: Sequence[Mapping[str, Any]]) -> list[_Head]:
    by = {(one["workload"], one["family"]): one["indices"] for one in known}
    return [
        _Head(work, place, tuple(by[work.workload.name, space.family]))
        for work in works
        for place, space in enumerate(work.spaces)
        if (work.workload.name, space.family) in by
    ]


def _kept(one: _Head, found: Mapping[int, Compiled]) -> dict[str, Any]:
    name = one.work.workload.name
    return {"workload": name, "family": one.space.family, "indices": sorted(found)}


def _asked(
    setup: LoopSetup, executor: Executor, heads: Sequence[_Head], budget_s: float
) -> Mapping[str, Any]:
    rows = [(h.work.workload, h.space, [h.space.configs[i] for i in h.indices]) for h in heads]
    task = setup.tasks.compile(rows, budget_s)
    for end in ends_of(executor, [task]):
        if end.answer is not None:
            return end.answer
        return {"unavailable": end.failure.detail if end.failure else "no answer"}
    return {"unavailable": "no answer"}


def _known(one: _Head, row: Sequence[Mapping[str, Any]] | None) -> dict[int, Compiled]:
    """What the compiler answered, by index in the space."""
    if row is None:
        return {}
    found = {i: Compiled(**fields) for i, fields in zip(one.indices, row, strict=True)}
    return {i: compiled for i, compiled in found.items() if compiled.is_known}


def _capability(answer: Mapping[str, Any]) -> tuple[int, int]:
    major, minor = answer["capability"]
    return int(major), int(minor)


def _prune(
    work: Work,
    own: Sequence[tuple[_Head, Mapping[int, Compiled]]],
    limits: Limits,
    book: Book,
    say: Say,
) -> None:
    spaces = list(work.spaces)
    counts: Counter[str] = Counter()
    for one, found in own:
        dropped = dict(_dropped(one.space, found, limits))
        for index, verdict in dropped.items():
            trial = _recorded(work, one.space, index, verdict, book)
            counts[str(trial.reason)] += 1
            say(line_of(trial), trial)
        spaces[one.place] = _pruned(one.space, found, dropped, limits)
    if own:
        compiled = sum(len(found) for _, found in own)
        total = sum(len(one.configs) for one in work.spaces)
        words = ", ".join(f"{n} {reason}" for reason, n in counts.most_common()) or "none"
        text = f"{work.workload.name}: {compiled} of {total} configurations compiled"
        say(f"{text}; dropped: {words}", None)
    work.spaces = tuple(spaces)


def _dropped(
    space: CandidateSpace, found: Mapping[int, Compiled], limits: Limits
) -> Iterator[tuple[int, Verdict]]:
    """All that is ruled out but the default, which is tried for the family's sake."""
    kinds = [str(space.configs[i].get("kernel", "")) for i in found]
    verdicts = prune(list(found.values()), kinds, limits)
    for index, verdict in zip(found, verdicts, strict=True):
        if verdict.dropped is not None and index != 0:
            yield index, verdict


def _recorded(work: Work, space: CandidateSpace, index: int, verdict: Verdict, book: Book) -> Trial:
    assert verdict.dropped is not None
    why = f"this point of {space.family}, compiled for the GPU without being run"
    proposal = Proposal(candidate_of(space, index), Action.CONFIG, why, ANSWER)
    name = work.workload.name
    known = book.ended(name, proposal)
    return known or book.pass_over(name, proposal, REASONS[verdict.dropped], verdict.detail)


def _pruned(
    space: CandidateSpace,
    found: Mapping[int, Compiled],
    dropped: Mapping[int, Verdict],
    limits: Limits,
) -> CandidateSpace:
    told = {i: features(one, limits) for i, one in found.items()}
    known = tuple(told.get(i) for i in range(len(space.configs)))
    rest = [i for i in range(len(space.configs)) if i not in dropped]
    return only(replace(space, features=known if any(known) else ()), rest)
