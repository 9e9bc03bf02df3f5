"""Before screens: compile what the search would ask first, and drop what cannot be good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.optimizer.loop_answers import line_of
from kernel_compass.optimizer.loop_book import Book
from kernel_compass.optimizer.loop_setup import LoopSetup, ends_of
from kernel_compass.optimizer.loop_work import Work
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
"""What a resumed run finds by what the compiler said, or that it said nothing."""
MOST_OF_A_FILE = 1024
"""Configurations of a candidate of a problem's file that are compiled, as the time allows: no
estimate says which of them are promising."""
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

    What was compiled is kept, and that nothing was: a resumed run asks for nothing, and has the
    spaces that the first had, whatever became of the compiler since.

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
    if known is None:
        heads, budget_s = _heads(setup, works), budget_of(setup)
        if not heads:
            return
        if budget_s < LEAST_S:
            words = f"{budget_s:.0f} s would be all there is for it"
            say(f"nothing is compiled beforehand: {words}", None)
            return
        count = sum(len(one.indices) for one in heads)
        words = f"{budget_s:.0f} s at most; none is run"
        say(f"compiling up to {count} configurations, {words}", None)
        known = _kept(heads, _asked(setup, executor, heads, budget_s))
        book.keep_answer(ANSWER, known)
    if "unavailable" in known:
        say(f"nothing was compiled beforehand: {known['unavailable']}", None)
        return
    for one in known.get("unknown", ()):
        say("{workload}: {family}: {why}".format(**one), None)
    found = list(_again(works, known))
    major, minor = known["capability"]
    for work in works:
        own = [row for row in found if row[0].work is work]
        _prune(work, own, LIMITS[int(major), int(minor)], book, say)


def budget_of(setup: LoopSetup) -> float:
    """Seconds that compiling may take."""
    minutes = setup.request.limits.minutes
    return MOST_S if minutes is None else min(60 * minutes * setup.options.static_share, MOST_S)


def _heads(setup: LoopSetup, works: Sequence[Work]) -> list[_Head]:
    return [
        _Head(work, place, tuple(head(space, count)))
        for work in works
        for place, space in enumerate(work.spaces)
        if (count := _how_many(setup, work, space))
    ]


def _how_many(setup: LoopSetup, work: Work, space: CandidateSpace) -> int:
    """Of a product's space those that were asked for; of a file's candidate all there is time for;
    of what is neither, none."""
    if work.workload.product is not None:
        return setup.options.static if space.format is not None else 0
    return MOST_OF_A_FILE if setup.request.source.sha256 is not None else 0


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


def _kept(heads: Sequence[_Head], answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an answer: of each space what the compiler had a word on."""
    if "unavailable" in answer:
        return {"unavailable": answer["unavailable"]}
    spaces, unknown = [], []
    for one, row in zip(heads, answer["compiled"], strict=True):
        rows = zip(one.indices, row or [], strict=row is not None)
        said = {i: Compiled(**fields) for i, fields in rows}
        name = {"workload": one.work.workload.name, "family": one.space.family}
        found = {i: c for i, c in said.items() if c.is_known}
        if found:
            spaces.append({**name, **_columns(found)})
        silent = [c.failure for i, c in said.items() if i not in found]
        if silent and one.work.workload.product is None:
            why = f"{len(silent)} of {len(said)} are not compiled beforehand: {silent[0]}"
            unknown.append({**name, "why": why})
    kept = {"capability": list(answer["capability"]), "spaces": spaces}
    return {**kept, "unknown": unknown} if unknown else kept


def _columns(found: Mapping[int, Compiled]) -> dict[str, Any]:
    """Figures in the order of their names; or why there are none."""
    names = sorted({name for one in found.values() for name in one.figures or ()})
    rows = [
        [i, one.failure if one.figures is None else [one.figures.get(name) for name in names]]
        for i, one in found.items()
    ]
    return {"names": names, "rows": rows}


def _again(
    works: Sequence[Work], known: Mapping[str, Any]
) -> Iterator[tuple[_Head, dict[int, Compiled]]]:
    """What was compiled, as it was kept."""
    by = {(one["workload"], one["family"]): one for one in known["spaces"]}
    for work in works:
        for place, space in enumerate(work.spaces):
            kept = by.get((work.workload.name, space.family))
            if kept is not None:
                found = {i: _compiled(kept["names"], values) for i, values in kept["rows"]}
                yield _Head(work, place, tuple(found)), found


def _compiled(names: Sequence[str], values: Sequence[float | None] | str) -> Compiled:
    if isinstance(values, str):
        return Compiled(None, values)
    rows = zip(names, values, strict=True)
    return Compiled({name: value for name, value in rows if value is not None})


def _prune(
    work: Work,
    own: Sequence[tuple[_Head, Mapping[int, Compiled]]],
    limits: Limits,
    book: Book,
    say: Say,
) -> None:
    spaces: list[CandidateSpace | None] = list(work.spaces)
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
    work.spaces = tuple(one for one in spaces if one is not None)


def _dropped(
    space: CandidateSpace, found: Mapping[int, Compiled], limits: Limits
) -> Iterator[tuple[int, Verdict]]:
    """All that is ruled out; the default, which is tried for the family's sake, only where no
    launch of it can be."""
    kinds = [str(space.configs[i].get("kernel", "")) for i in found]
    verdicts = prune(list(found.values()), kinds, limits)
    for index, verdict in zip(found, verdicts, strict=True):
        if verdict.dropped is not None and (index != 0 or verdict.dropped.is_firm):
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
) -> CandidateSpace | None:
    """What is left of a space; `None` = nothing."""
    told = {i: features(one, limits) for i, one in found.items()}
    known = tuple(told.get(i) for i in range(len(space.configs)))
    rest = [i for i in range(len(space.configs)) if i not in dropped]
    return only(replace(space, features=known if any(known) else ()), rest) if rest else None
