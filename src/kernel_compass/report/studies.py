"""Studies for people: a line each, or one with its trials."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from shlex import quote

from kernel_compass.records.dispatch import DispatchEntry
from kernel_compass.records.rejected import RejectedIdea
from kernel_compass.records.step_action import StepEntry
from kernel_compass.records.study import RecordedStudy, StudyState
from kernel_compass.records.trial import Outcome, RegimeResult, Trial
from kernel_compass.report.phrases import count_text, plain

_MISSING = "-"


def study_line(name: str, recorded: RecordedStudy | None, problem: str | None) -> tuple[str, ...]:
    """Name, state, when it changed, target, trials, the best accepted speedup."""
    if recorded is None:
        return (name, "unusable", _MISSING, plain(problem or ""), "", "")
    accepted = recorded.accepted
    counts = f"{count_text(len(recorded.trials), 'trial')}, {len(accepted)} accepted"
    best = max((_surely(one) for one in accepted), default=None)
    return (
        name,
        recorded.study.state.value,
        (recorded.changed or _MISSING)[:16].replace("T", " "),
        plain(recorded.study.request.source.target),
        counts,
        "" if best is None else f"best {best:.2f}x at least",
    )


def history_text(lines: Sequence[Sequence[str]], where: str) -> str:
    """All studies in columns."""
    if not lines:
        return f"No studies in {where}.\n"
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "".join(f"{row}\n" for row in rows)


def study_text(recorded: RecordedStudy) -> str:
    """One study: what was asked for, every trial in a line, what was accepted."""
    study, request = recorded.study, recorded.study.request
    device = study.environment.device.name or "unknown device"
    regimes = ", ".join(one.value for one in request.regimes)
    head = [
        f"{study.identifier}: {plain(request.source.target)} on {plain(device)}, {study.state}",
        f"  regimes {regimes}; {request.strategy}, seed {request.seed}; "
        f"formats {', '.join(request.formats) or 'all within the budget'}",
    ]
    if recorded.detail:
        head.append(f"  {plain(recorded.detail)}")
    lines = [*head, "", *map(_trial_text, recorded.trials)]
    for pending in recorded.pending:
        name = pending.proposal.candidate.implementation
        lines.append(f"  {pending.number:>4}  pending   {pending.workload}  {plain(name)}")
    lines += _interruptions(recorded)
    if study.state is StudyState.INTERRUPTED:
        lines += ["", f"Go on with it: kernel-compass optimize --resume {study.identifier}"]
    return "\n".join(lines) + "\n"


def applied_text(
    study: str,
    entries: Iterable[DispatchEntry],
    in_force: Collection[DispatchEntry],
    table: str,
    steps: Sequence[StepEntry] = (),
) -> str:
    """What was put into a table, and what of it another study's better one outdoes."""
    lines = [
        f"  {one.reference}  {one.pattern.text}  {_entry_name(one)}"
        f"{'' if one in in_force else '  (outdone by another)'}"
        for one in entries
    ]
    lines += [f"  {one.reference}  {one.program}: {one.action.text}" for one in steps]
    count = len(in_force) + len(steps)
    back = f"Take it back: kernel-compass revert {study} --table {quote(table)}"
    return "\n".join([f"Written to {table} ({count} in force):", *lines, back]) + "\n"


def reverted_text(
    entries: Iterable[DispatchEntry], left: int, table: str, steps: Iterable[StepEntry] = ()
) -> str:
    """What was taken out of a table."""
    taken = [f"  {one.reference}  {one.pattern.text}  {_entry_name(one)}" for one in entries]
    taken += [f"  {one.reference}  {one.program}: {one.action.text}" for one in steps]
    rest = f"{left} of others in force" if left else "nothing left, file removed"
    return "\n".join([f"Reverted in {table} ({rest}):", *taken]) + "\n"


def rejected_text(ideas: Iterable[RejectedIdea]) -> str:
    """What is remembered, a line each."""
    lines = [
        f"{one.at[:16].replace('T', ' ')}  {one.reason}  {one.idea.workload}  "
        f"{plain(one.idea.candidate.implementation)} {_config(one.idea.candidate.config)}  "
        f"{plain(one.idea.gpu.name)}  ({one.study}:{one.trial}): {plain(one.detail)}"
        for one in ideas
    ]
    return "".join(f"{line}\n" for line in lines) or "Nothing is remembered as rejected.\n"


def _trial_text(trial: Trial) -> str:
    candidate = trial.proposal.candidate
    words = [f"  {trial.number:>4}  {trial.outcome.value:<8}  {plain(trial.workload)}"]
    words.append(plain(candidate.implementation))
    words += [candidate.format] if candidate.format else []
    words += [_config(candidate.config)] if candidate.config else []
    if trial.outcome in (Outcome.ACCEPTED, Outcome.SCREENED):
        words.append(", ".join(map(_result, trial.results)))
    else:
        words.append(f"{trial.reason}: {plain(trial.detail)}")
        words += [f"\n{'':8}{plain(note)}" for note in trial.notes]
    return "  ".join(words)


def _result(result: RegimeResult) -> str:
    s = result.speedup
    return f"{result.regime} {s.estimate:.2f}x [{s.low:.2f}, {s.high:.2f}]"


def _interruptions(recorded: RecordedStudy) -> list[str]:
    return [
        f"  trial {one.number}, attempt {one.attempt}: {plain(one.detail)}"
        for one in recorded.interruptions
    ]


def _surely(trial: Trial) -> float:
    return min((one.speedup.low for one in trial.results), default=0.0)


def _entry_name(entry: DispatchEntry) -> str:
    format = f" {entry.candidate.format}" if entry.candidate.format else ""
    return plain(entry.candidate.implementation) + format


def _config(config: object) -> str:
    assert hasattr(config, "items"), "a configuration is a mapping"
    return plain(" ".join(f"{key}={value}" for key, value in sorted(config.items())))
