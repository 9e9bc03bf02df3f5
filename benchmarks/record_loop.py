"""Record a problem for the loop: every configuration judged and timed once.

    python benchmarks/record_loop.py mla:deepseek-v3 --tokens 1,16 --output FILE.json.gz \
        [--device cuda:0] [--formats bf16,w8a16_fp8] [--most 40] [--minutes 9]

The tasks are those of `kernel-compass optimize`, so what is played back is what was answered. Of
each space the default and the best by estimate are recorded, `--most` in all, spaces in turns,
until the minutes are over. `--device recorded:FILE` then runs the loop on it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_compass.api.evaluating import __name__ as EVALUATING
from kernel_compass.api.loop_place import placed
from kernel_compass.api.loop_requests import study_request
from kernel_compass.codec import loop_recording
from kernel_compass.optimizer.loop_answers import baseline_of
from kernel_compass.optimizer.loop_setup import ends_of
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.loop_recording import (
    LoopRecording,
    RecordedCandidate,
    RecordedWorkload,
)
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Candidate, Reason

METHOD = (
    "one screen of each configuration: judged at its own sizes, timed in turns with the baseline "
    "in one process; a time is the baseline's over the speedup"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--tokens")
    parser.add_argument("--formats", default="")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--output", type=Path, required=True)
    a = parser.parse_args()
    tokens = [int(word) for word in a.tokens.split(",")] if a.tokens else None
    formats = [word for word in a.formats.split(",") if word]
    request = study_request(a.target, tokens=tokens, formats=formats)
    request = replace(request, options={"device": a.device})
    began = time.monotonic()
    with placed(request, "recording") as place:
        maker = TaskMaker(
            EVALUATING,
            request.source,
            place.device,
            0,
            place.problem.error_budget_pct,
            LoopOptions(),
            place.calibration,
        )
        workloads = {one.name: one for one in place.problem.workloads}
        found = _baselines(place.executor, maker, list(workloads.values()), request.regimes)
        candidates: dict[str, list[RecordedCandidate]] = {name: [] for name in workloads}
        for number, (name, space, index) in enumerate(_order(place.spaces, a.most), 1):
            if time.monotonic() - began > 60 * a.minutes:
                break
            candidate = Candidate(
                space.implementation, space.configs[index], space.format, space.source
            )
            task = maker.screen(number, workloads[name], candidate, request.regimes)
            (end,) = ends_of(place.executor, [task])
            one = _recorded(space, index, candidate, end, found[name].baseline_us)
            candidates[name].append(one)
            print(number, name, space.family, dict(one.times_us), one.reason, flush=True)
        whole = LoopRecording(
            a.target,
            replace(place.environment, date=None),
            tuple(replace(found[n], candidates=tuple(candidates[n])) for n in workloads),
            method=METHOD,
        )
    a.output.write_bytes(loop_recording.encode(whole))
    count = sum(map(len, candidates.values()))
    print(f"{count} configurations in {time.monotonic() - began:.0f} s: {a.output}")
    return 0


def _order(
    spaces: Mapping[str, Sequence[CandidateSpace]], most: int
) -> Iterator[tuple[str, CandidateSpace, int]]:
    """Every workload's spaces in turns, the best of each by estimate first."""
    for index in range(most):
        for name, offered in spaces.items():
            for space in offered:
                ranked = _ranked(space)
                if index < len(ranked):
                    yield name, space, ranked[index]


def _ranked(space: CandidateSpace) -> list[int]:
    column = next(iter(space.estimates_us.values()), (None,) * len(space.configs))
    rest = sorted(range(1, len(space.configs)), key=lambda i: (column[i] or 0.0, i))
    return [0, *rest]


def _baselines(
    executor: Any, maker: TaskMaker, workloads: list[ProblemWorkload], regimes: Sequence[Regime]
) -> dict[str, RecordedWorkload]:
    tasks = {f"baseline {one.name}": one for one in workloads}
    found = {}
    for end in ends_of(executor, [maker.baseline(one, regimes) for one in workloads]):
        if end.answer is None:
            sys.exit(f"{end.identifier}: {end.failure}")
        workload = tasks[end.identifier]
        baseline = baseline_of(workload.name, end.answer)
        floors = {r.regime: r.floor_us for r in baseline.regimes if r.floor_us is not None}
        found[workload.name] = RecordedWorkload(workload, baseline.times_us, floors)
    return found


def _recorded(
    space: CandidateSpace,
    index: int,
    candidate: Candidate,
    end: TaskEnd,
    baseline_us: Mapping[Regime, float],
) -> RecordedCandidate:
    known = {r: column[index] for r, column in space.estimates_us.items()}
    one = RecordedCandidate(
        candidate.implementation,
        candidate.format,
        candidate.source,
        candidate.config,
        estimates_us={r: value for r, value in known.items() if value is not None},
        floors_us=space.floors_us,
    )
    if end.failure is not None:
        return replace(one, reason=end.failure.reason, detail=end.failure.detail)
    assert end.answer is not None
    said = end.answer["judgement"]
    one = replace(
        one,
        detail=said["detail"],
        fidelity_error_pct=said["fidelity_error_pct"],
        format_error_pct=said["format_error_pct"],
        added_bytes=end.answer["added_bytes"],
    )
    if said["reason"] is not None:
        return replace(one, reason=Reason(said["reason"]))
    if "timing_failure" in end.answer:
        detail = end.answer["timing_failure"]
        return replace(one, reason=Reason.CANNOT_BE_TIMED, detail=detail)
    times = {
        Regime(row["regime"]): baseline_us[Regime(row["regime"])] / row["estimate"]
        for row in end.answer["regimes"]
    }
    return replace(one, times_us=times)


if __name__ == "__main__":
    sys.exit(main())
