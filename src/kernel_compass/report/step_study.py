"""A study over a step, for people: what was kept and its share, what was foretold and what came."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.records.selection import Selected
from kernel_compass.records.step_action import (
    OutputError,
    StepActionKind,
    StepProposal,
    StepTrial,
)
from kernel_compass.records.step_capture import NotHandled
from kernel_compass.records.step_loop import StepPlace
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import RecordedStudy
from kernel_compass.report.phrases import plain
from kernel_compass.units import bytes_text, duration_text, percent_text

VANISHED = 0.5
"""Under this part of what it promised alone, a win is said to have vanished."""
MOST_PASSED = 8
NOT_MEASURED = "Nothing was measured here: these are predictions from the captured step."


def step_study_text(recorded: RecordedStudy) -> str:
    """The whole of it."""
    study = recorded.step or StepStudy()
    head = [f"{recorded.study.identifier}: {plain(study.step)}"]
    if study.step_us is not None:
        head.append(f"  {duration_text(study.step_us)} a step as it was captured")
    if recorded.study.request.formats:
        head.append(f"  products in {', '.join(recorded.study.request.formats)} alone")
    lines = [*head, *[f"  {plain(one)}" for one in study.notes], ""]
    lines += _final(study)
    lines += _kept(study)
    lines += _not_kept(study.steps)
    lines += _passed(study.passed_over)
    lines += _not_handled(study.not_handled)
    if recorded.detail:
        lines += ["", plain(recorded.detail)]
    return "\n".join(lines) + "\n"


def step_plan_text(
    step: str,
    stages: Sequence[tuple[Sequence[StepPlace], Sequence[StepProposal]]],
    not_handled: Sequence[NotHandled],
) -> str:
    """Where a captured step's time goes and what would be tried, with nothing measured.

    Args:
        step: what it is of.
        stages: places and proposals of the step as it is, and as it would be in a CUDA graph.
        not_handled: of the program.
    """
    lines = [f"{plain(step)}", NOT_MEASURED]
    for number, (places, offers) in enumerate(stages):
        if number:
            lines += ["", "Once it is in a graph, by its kernels' times alone:"]
        lines += ["", *_places(places), "", *_offers(offers)]
    lines += _not_handled(not_handled)
    return "\n".join(lines) + "\n"


def _places(places: Sequence[StepPlace]) -> list[str]:
    lines = []
    passed = []
    for place in places:
        over = place.selected.passed_over
        if over is not None and over.value != "no_floor":
            passed.append(place.selected)
            continue
        lines.append(f"  {plain(place.selected.workload)}")
        lines.append(f"    {plain(place.selected.why)}")
        if place.lines:
            lines.append(f"    at {', '.join(plain(one.text) for one in place.lines[:3])}")
    return [*lines, *(["", *_passed(passed)[:-1]] if passed else [])]


def _offers(offers: Sequence[StepProposal]) -> list[str]:
    lines = ["What would be tried, the most promising first:" if offers else "Nothing to try."]
    for number, one in enumerate(offers, 1):
        lines.append(f"  {number}. {plain(one.action.text)}: {_prediction(one)}")
        lines.append(f"     {plain(one.why)}")
        if one.preconditions:
            lines.append(f"     only if {plain('; '.join(one.preconditions))}")
    return lines


def share_of_gain(trial: StepTrial, kept: Sequence[StepTrial]) -> float | None:
    """What part of all that was saved one change saved, 0-1; `None` where it is not known."""
    saved = [one.saved_us for one in kept]
    total = sum(one for one in saved if one is not None)
    if trial.saved_us is None or total <= 0:
        return None
    return trial.saved_us / total


def vanished(trial: StepTrial) -> str | None:
    """Where a win that a product had alone did not arrive in the step; `None` = it did."""
    proposal = trial.proposal
    if proposal.action.kind is not StepActionKind.PRODUCT or proposal.part_speedup is None:
        return None
    promised, saved = proposal.saves_us, trial.saved_us
    if not promised or saved is None or saved >= VANISHED * promised:
        return None
    arrived = max(saved, 0.0)
    return (
        f"alone {proposal.part_speedup:.2f}x, which would save {duration_text(promised)} of the "
        f"step; {duration_text(arrived)} arrived ({percent_text(100 * arrived / promised)}). The "
        "rest is lost to what runs beside it: another state of L2, time that was hidden before, "
        "or the cost of the call"
    )


def _final(study: StepStudy) -> list[str]:
    final = study.final
    if final is None:
        if not study.kept:
            return ["Nothing was faster: the program stays as it is.", ""]
        return ["Not confirmed in fresh processes yet.", ""]
    word = "Accepted" if final.accepted else "Not accepted"
    rows = [f"{word}: {plain(final.detail)}"]
    if final.speedup is not None and final.before_us and final.after_us:
        s = final.speedup
        rows.append(
            f"  the whole step {s.estimate:.3f}x [{s.low:.3f}, {s.high:.3f}] over "
            f"{final.processes} fresh processes: "
            f"{duration_text(final.before_us)} -> {duration_text(final.after_us)}"
        )
    if final.outputs:
        rows.append(f"  outputs, {_on(final.inputs)}: {_errors(final.outputs)}")
    if final.added_bytes:
        rows.append(f"  memory: {bytes_text(final.added_bytes)} more")
    return [*rows, ""]


def _kept(study: StepStudy) -> list[str]:
    kept = study.kept
    rows = ["Kept, each on top of those before it:"] if kept else []
    for trial in kept:
        share = share_of_gain(trial, kept)
        part = "" if share is None else f", {percent_text(100 * share)} of what was saved"
        rows.append(f"  {trial.number} {plain(trial.proposal.action.text)}")
        rows.append(f"    {_measured(trial)}{part}")
        rows.append(f"    foretold: {_prediction(trial.proposal)}")
        if trial.outputs:
            rows.append(f"    outputs, {_on(trial.inputs)}: {_errors(trial.outputs)}")
        if trial.added_bytes:
            rows.append(f"    memory: {bytes_text(trial.added_bytes)} more")
        lost = vanished(trial)
        if lost is not None:
            rows.append(f"    where its win went: {plain(lost)}")
    return [*rows, ""] if rows else []


def _not_kept(trials: Sequence[StepTrial]) -> list[str]:
    rows = []
    for trial in trials:
        if trial.reason is None:
            continue
        rows.append(f"  {trial.number} {plain(trial.proposal.action.text)}")
        rows.append(f"    {trial.reason}: {plain(trial.detail)}")
        rows.append(f"    foretold: {_prediction(trial.proposal)}")
        if trial.speedup is not None:
            rows.append(f"    {_measured(trial)}")
        lost = vanished(trial)
        if lost is not None:
            rows.append(f"    where its win went: {plain(lost)}")
    return ["Tried and taken back:", *rows, ""] if rows else []


def _passed(passed: Sequence[Selected]) -> list[str]:
    if not passed:
        return []
    rows = [f"  {plain(one.workload)}: {plain(one.why)}" for one in passed[:MOST_PASSED]]
    more = len(passed) - MOST_PASSED
    return ["Passed over:", *rows, *([f"  and {more} more"] if more > 0 else []), ""]


def _not_handled(rows: Sequence[NotHandled]) -> list[str]:
    if not rows:
        return []
    found = []
    for one in rows:
        where = "" if one.line is None else f" ({plain(one.line.text)})"
        found.append(f"  {plain(one.what)}{where}: {plain(one.why)}")
    return ["", "Not handled:", *found]


def _measured(trial: StepTrial) -> str:
    s = trial.speedup
    if s is None:
        return "not timed"
    times = ""
    if trial.before_us is not None and trial.after_us is not None:
        times = f": {duration_text(trial.before_us)} -> {duration_text(trial.after_us)}"
    return f"{s.estimate:.3f}x [{s.low:.3f}, {s.high:.3f}]{times}"


def _prediction(proposal: StepProposal) -> str:
    part = percent_text(100 * proposal.share)
    if proposal.saves_us is None:
        return f"not known; it touches {part} of the step"
    speedup = "" if proposal.part_speedup is None else f", {proposal.part_speedup:.2f}x there"
    saves = duration_text(max(proposal.saves_us, 0.0))
    return f"saves {saves} a step; it touches {part}{speedup}"


def _on(inputs: int) -> str:
    return "on one input" if inputs == 1 else f"on each of {inputs} inputs"


def _errors(outputs: Sequence[OutputError]) -> str:
    rows = []
    for one in sorted(outputs, key=lambda o: -o.relative_pct)[:3]:
        text = f"{plain(one.name)} {percent_text(one.relative_pct)} off"
        if one.top1_agreement_pct is not None:
            text += f", top-1 the same in {percent_text(one.top1_agreement_pct)}"
        if one.kl is not None:
            text += f", KL {one.kl:.2g}"
        rows.append(text)
    more = len(outputs) - len(rows)
    return "; ".join(rows) + (f"; {more} more are nearer" if more else "")
