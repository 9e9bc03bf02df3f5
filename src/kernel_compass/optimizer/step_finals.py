"""What fresh processes found of all changes together, put into one: accepted or not, and why."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kernel_compass.analysis.hold_out import hold_out
from kernel_compass.errors import MeasurementError
from kernel_compass.records.comparison import Decision, Rule
from kernel_compass.records.step_action import OutputError
from kernel_compass.records.step_loop import StepOptions, StepSampled
from kernel_compass.records.step_study import StepFinal
from kernel_compass.records.trial import Reason


def final_of(
    found: Sequence[StepSampled], failure: tuple[Reason, str] | None, options: StepOptions
) -> tuple[StepFinal, Reason | None]:
    """What goes into the study, and why it is not accepted.

    Args:
        found: of each fresh process that answered with samples.
        failure: what ended the processes early.
        options: effect and number of processes that are asked for.
    """
    if failure is not None:
        return StepFinal(False, f"a fresh process: {failure[1]}", processes=len(found)), failure[0]
    samples = [one.samples for one in found if one.samples is not None]
    rule = Rule(minimum_effect=options.final_effect, hold_out_processes=options.processes)
    try:
        result = hold_out(samples, rule)
    except MeasurementError as error:
        final = StepFinal(False, error.found, processes=len(samples))
        return final, Reason.CANNOT_BE_TIMED
    faster = result.decision is Decision.FASTER
    final = StepFinal(
        faster,
        "; ".join(result.reasons),
        result.speedup,
        median(t for one in samples for t in one.baseline_us),
        median(t for one in samples for t in one.candidate_us),
        worst_outputs(found),
        max(one.added_bytes for one in found),
        result.processes,
        inputs=min(one.inputs for one in found),
    )
    return final, None if faster else Reason.HOLD_OUT


def worst_outputs(found: Sequence[StepSampled]) -> tuple[OutputError, ...]:
    """Each output where it was furthest off."""
    outputs: dict[str, OutputError] = {}
    for one in (error for sampled in found for error in sampled.outputs):
        worst = outputs.get(one.name)
        if worst is None or one.relative_pct > worst.relative_pct:
            outputs[one.name] = one
    return tuple(outputs.values())
