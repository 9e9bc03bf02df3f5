"""The doors of `script_loop` on this machine: torch.profiler, studies, a dispatch table, a user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_compass.api.loop_requests import study_request
from kernel_compass.api.optimizing import optimize
from kernel_compass.api.places import chosen_gpus
from kernel_compass.api.running import profile_timeline
from kernel_compass.api.script_loop import Offer, ScriptDoors
from kernel_compass.api.studies import apply_study, revert_study
from kernel_compass.errors import UsageError
from kernel_compass.records.report import Report
from kernel_compass.records.request import ProfileRequest
from kernel_compass.records.trial import Trial
from kernel_compass.records.workload import Workload


def doors_of_this_machine(
    command: Sequence[str],
    table: Path,
    minutes: float,
    budget_pct: float,
    yes: bool,
    say: Callable[[str], None],
) -> ScriptDoors:
    """The doors.

    Args:
        command: the script with its interpreter and arguments.
        table: the dispatch table that the script loads.
        minutes: of each study.
        budget_pct: largest relative error against full precision.
        yes: ask nothing.
        say: prints a line.

    Raises:
        UsageError: there is no such script, or nobody is there to be asked.
        MeasurementError: this machine shows no GPU.
    """
    if not Path(command[1]).is_file():
        raise UsageError(f"There is no script {command[1]}.", "Name a Python file.")
    if not yes and not sys.stdin.isatty():
        raise UsageError("Nobody is there to be asked.", "Run it in a terminal, or pass --yes.")
    chosen_gpus("cuda")
    return _Doors(tuple(command), table, minutes, budget_pct, yes, say)


@dataclass(frozen=True)
class _Doors:
    command: tuple[str, ...]
    table: Path
    minutes: float
    budget_pct: float
    yes: bool
    say_line: Callable[[str], None]

    def profile(self) -> Sequence[Report]:
        self.say(f"profiling {' '.join(self.command[1:])} ...")
        return profile_timeline(ProfileRequest(self.command))

    def propose(self, target: str, workload: Workload) -> Offer | None:
        request = study_request(target, budget_pct=self.budget_pct, minutes=self.minutes)
        found = optimize(request, "cuda", lambda event: self.say(f"    {event.text}"))
        accepted = found.recorded.accepted
        if not accepted:
            return None
        return Offer(found.recorded.study.identifier, _text(accepted[0], workload))

    def apply(self, offer: Offer) -> None:
        apply_study(offer.study, self.table)
        self.say(f"  applied to {self.table}")

    def revert(self, offer: Offer) -> None:
        revert_study(offer.study, self.table)

    def agrees(self, question: str) -> bool:
        if self.yes:
            return True
        self.say(question)
        return input("[y/N] ").strip().lower() in ("y", "yes")

    def say(self, text: str) -> None:
        self.say_line(text)


def _text(trial: Trial, workload: Workload) -> str:
    candidate = trial.proposal.candidate
    speedups = ", ".join(
        f"{one.regime.value} {one.speedup.estimate:.3f}x "
        f"({one.speedup.low:.3f} to {one.speedup.high:.3f})"
        for one in trial.results
    )
    name = " ".join(filter(None, (candidate.implementation, candidate.format)))
    return f"{workload.shape_text}: {name} {speedups}"
