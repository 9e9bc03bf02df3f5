"""What a worker does for `validate`: judge a candidate at a workload, then time it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.api.candidate_names import BASELINE_NAME
from kernel_compass.api.comparing import compare
from kernel_compass.api.judging import bench, judgement_fields, spent_by
from kernel_compass.api.loop_spaces import target_named
from kernel_compass.api.problem_candidates import BASELINE_FORMAT, BaselineRunner, judged
from kernel_compass.api.problems import problem_recipe
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import MeasurementError, NotTaken, UsageError
from kernel_compass.kernels.providers import registry
from kernel_compass.measurement.fresh import device_named
from kernel_compass.measurement.paired import TimedWrong
from kernel_compass.records.comparison import Interval
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate, Reason
from kernel_compass.validation.judge_contracts import Effort, Judgement

VALIDATE = f"{__name__}:validate_task"


@dataclass(frozen=True)
class TimedRegime:
    """Beside the baseline, in one process: a screen, and no proof."""

    regime: Regime
    speedup: Interval
    decision: str


def validate_task(arguments: Mapping[str, Any], tell: Any) -> dict[str, Any]:
    """In a worker: judge a candidate, then time it.

    Args:
        arguments: as `validate_candidate` makes them.
        tell: told when its first call has returned.

    Returns:
        `judgement`, `times`, `untimed`; or `wrong`: what is wrong with the problem,
        or with the candidate's configuration.
    """
    a = arguments
    source, workload = (
        reshaped(a["source"], ProblemSource),
        reshaped(a["workload"], ProblemWorkload),
    )
    candidate = reshaped(a["candidate"], Candidate)
    at = bench(a["device"])
    tell({"phase": "compile"})
    refused = _refusal(source, workload, candidate, a["device"])
    if refused is not None:
        return _answer(Judgement(Reason.NOT_SUPPORTED, refused))
    try:
        problem, build, declared = judged(
            at.torch, source, workload, candidate, a["device"], a["budget_pct"], a["sha256"]
        )
    except UsageError as error:
        return {"wrong": [error.found, error.remedy]}
    if _is_baseline(source, candidate):
        build, declared = (lambda: BaselineRunner(problem)), True
    effort = Effort(**a["effort"])
    try:
        found = at.judged(
            problem, workload, build, lambda: tell({"phase": "run"}), effort, declared
        ).judgement
    except NotTaken as error:
        return {"wrong": [error.found, error.remedy]}
    tell({"phase": "run"})
    if found.reason is not None or not a["regimes"]:
        return _answer(found)
    return _timed(found, source, workload, candidate, a)


def _timed(
    found: Judgement,
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    a: Mapping[str, Any],
) -> dict[str, Any]:
    try:
        return _answer(found, _times(source, workload, candidate, a))
    except TimedWrong as error:
        return _answer(replace(found, reason=error.reason, detail=error.found))
    except MeasurementError as error:
        return _answer(found, untimed=error.found)


def _is_baseline(source: ProblemSource, candidate: Candidate) -> bool:
    own = source.sha256 is not None and candidate.source == source.target
    return own and candidate.implementation == BASELINE_NAME


def _refusal(
    source: ProblemSource, workload: ProblemWorkload, candidate: Candidate, device: str
) -> str | None:
    if source.sha256 is not None or workload.product is None:
        return None
    one = registry.implementation(candidate.implementation)
    target = Target("cpu") if device == "cpu" else target_named(device)
    number_format = NumberFormat.parse(candidate.format or BASELINE_FORMAT)
    return one.supports(workload.product, number_format, target)


def _times(
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate,
    a: Mapping[str, Any],
) -> list[dict[str, Any]]:
    device = device_named(a["device"])
    chosen = None if _is_baseline(source, candidate) else candidate
    recipes = (
        problem_recipe(source, workload, None),
        problem_recipe(source, workload, chosen, a["sha256"]),
    )
    base, other = (one.build(device) for one in recipes)
    found = []
    for name in a["regimes"]:
        result = compare(base, other, device, Regime(name))
        found.append(plain(TimedRegime(result.regime, result.speedup, result.decision.value)))
    return found


def _answer(
    found: Judgement, times: Sequence[Mapping[str, Any]] = (), untimed: str | None = None
) -> dict[str, Any]:
    said = {"judgement": judgement_fields(found), "times": list(times)}
    return {**said, "untimed": untimed, **spent_by(found)}
