"""What a study came to, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernel_compass.records.loop import Baseline, FewerBytes, FormatRoom, LoopEnd
from kernel_compass.records.selection import PassedOver
from kernel_compass.records.study import RecordedStudy
from kernel_compass.records.trial import Outcome, Trial
from kernel_compass.report.phrases import count_text, plain
from kernel_compass.units import bytes_text, percent_text


def optimized_text(recorded: RecordedStudy, end: LoopEnd) -> str:
    """Each workload with its verdict, then why the others were rejected, and what to do next."""
    study = recorded.study
    lines = ["", f"{study.identifier}: {end.detail}", ""]
    for name, baseline in end.baselines.items():
        tried = [one for one in recorded.trials if one.workload == name]
        lines += _workload(name, baseline, end, tried)
    lines += ["", *_rejections(recorded)]
    lines.append(f"Every trial: kernel-compass show {study.identifier}")
    if end.why.value == "stopped":
        lines.append(f"Go on with it: kernel-compass optimize --resume {study.identifier}")
    return "\n".join(lines) + "\n"


def _workload(name: str, baseline: Baseline, end: LoopEnd, tried: Sequence[Trial]) -> list[str]:
    times = ", ".join(
        f"{o.regime.value} {o.time_us:.2f} us"
        + (f" ({o.time_us / o.floor_us:.2f} x its floor)" if o.floor_us else "")
        for o in baseline.regimes
    )
    best = end.best.get(name)
    found = [f"{plain(name)}: baseline {times}"]
    if name in end.fewer_bytes:
        found += _fewer_bytes(end.fewer_bytes[name])
    if best is None:
        passed = (s for s in end.selected if s.workload == name and s.passed_over)
        why = next((s.why for s in passed if s.passed_over is not PassedOver.NO_FLOOR), None)
        return [*found, f"  nothing accepted: {why or _why_nothing(tried)}"]
    return [*found, *_best(best)]


def _why_nothing(tried: Sequence[Trial]) -> str:
    """In a line, where nothing passed the screen."""
    if any(one.results for one in tried):
        return "nothing was faster in every regime"
    if not tried:
        return "nothing was tried"
    return f"none of {count_text(len(tried), 'candidate')} came as far as being timed"


def _best(trial: Trial) -> list[str]:
    c = trial.proposal.candidate
    config = " ".join(f"{key}={value}" for key, value in sorted(c.config.items()) if value != "")
    accepted = trial.outcome is Outcome.ACCEPTED
    word = "accepted" if accepted else "best so far, not confirmed"
    rows = [f"  {word}: {plain(c.implementation)} {c.format or ''} (trial {trial.number})"]
    for r in trial.results:
        s = r.speedup
        rows.append(
            f"    {r.regime.value:<5} {s.estimate:.3f}x [{s.low:.3f}, {s.high:.3f}]  "
            f"{r.baseline_us:.2f} -> {r.candidate_us:.2f} us"
        )
    parts = []
    if trial.format_error_pct is not None:
        parts.append(f"error {percent_text(trial.format_error_pct)}")
    if trial.added_bytes is not None:
        parts.append(f"{bytes_text(trial.added_bytes)} beside the original weight")
    if config:
        parts.append(plain(config))
    said = [f"    {'; '.join(parts)}"] if parts else []
    return [*rows, *said, *(f"    {plain(note)}" for note in trial.notes)]


def _fewer_bytes(room: FewerBytes) -> list[str]:
    """What a smaller weight can win: a sentence on where it lies, and a row a size."""
    size = bytes_text(room.weight_bytes)
    where = {
        None: f"its weight of {size} at 16 bits",
        True: f"its weight of {size} stays in L2, which holds {bytes_text(room.l2_bytes)} here: "
        "fewer bytes save DRAM traffic cold, and L2 traffic alone warm",
        False: f"its weight of {size} is more than L2 keeps, {bytes_text(room.l2_bytes)} here: "
        "fewer bytes save DRAM traffic in both regimes",
    }[room.stays_in_l2]
    rows = [f"  {where}"]
    for one in _distinct(room.formats):
        most = ", ".join(
            f"{regime.value} {ratio:.2f}x ({one.bounds.get(regime, 'bytes')})"
            for regime, ratio in sorted(one.most.items(), key=lambda item: item[0].value)
        )
        rows.append(f"    {one.format}, {bytes_text(one.weight_bytes)}: at most {most}")
    return rows


def _distinct(formats: Sequence[FormatRoom]) -> list[FormatRoom]:
    """One of those with the same bytes and floors, the largest weight first."""
    seen = {(one.weight_bytes, tuple(sorted(one.most.items()))): one for one in reversed(formats)}
    return sorted(seen.values(), key=lambda one: -one.weight_bytes)


def _rejections(recorded: RecordedStudy) -> list[str]:
    counts = Counter(t.reason.value for t in recorded.trials if t.reason is not None)
    if not counts:
        return []
    words = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
    return [f"{count_text(len(recorded.trials), 'trial')}; not accepted: {words}"]
