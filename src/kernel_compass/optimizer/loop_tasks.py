"""What the loop asks an executor for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_compass.codec.canonical import plain
from kernel_compass.records.contracts import Config
from kernel_compass.records.execution import Task
from kernel_compass.records.loop import SANITIZER_TOOLS, LoopOptions
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Candidate

BASELINE, SCREEN, FINALS, EXPLAIN = "baseline_task", "screen_task", "finals_task", "explain_task"
COMPILE, DIAGNOSE, SANITIZE = "compile_task", "diagnose_task", "sanitize_task"
SURVEY = "survey_task"
TASKS = (BASELINE, SCREEN, FINALS, EXPLAIN, COMPILE, DIAGNOSE, SANITIZE, SURVEY)
"""What the functions are called, in whatever module answers them."""
Final = tuple[ProblemWorkload, Candidate]
Head = tuple[ProblemWorkload, CandidateSpace, Sequence[Config]]
"""The most promising configurations of a space."""
SCREEN_EFFORT: Mapping[str, int | float] = {"seeds": 1, "repeats": 8, "repeat_s": 0.5}
"""Of the judge: few draws ..."""
FULL_EFFORT: Mapping[str, int | float] = {"seeds": 3, "repeats": 40, "repeat_s": 2.0}
"""... and all there is; then at other sizes, too."""
STARTS_S = 60.0
"""What a task may take beside the seconds that it is given: for programs to start and to end."""


@dataclass(frozen=True)
class TaskMaker:
    """Makes tasks; what they have in common is here."""

    module: str
    """Where the functions are: `kernel_compass.api.evaluating`."""
    source: ProblemSource
    device: str
    """`cuda:0`, `simulated`, ..."""
    seed: int
    budget_pct: float
    options: LoopOptions
    calibration: str | None = None
    """What floors rest on."""

    def baseline(self, workload: ProblemWorkload, regimes: Sequence[Regime]) -> Task:
        """Times and floors of what is to be beaten."""
        asked = {"workload": plain(workload), "regimes": _words(regimes)}
        return self._task(f"baseline {workload.name}", BASELINE, asked, self.options.run_timeout_s)

    def survey(self, workload: ProblemWorkload) -> Task:
        """What a call of the baseline of a problem's file consists of."""
        asked = {"workload": plain(workload)}
        return self._task(f"survey {workload.name}", SURVEY, asked, self.options.run_timeout_s)

    def screen(
        self,
        number: int,
        workload: ProblemWorkload,
        candidate: Candidate,
        regimes: Sequence[Regime],
    ) -> Task:
        """Judge a candidate and time it beside the baseline, in one process."""
        name = f"screen {number}"
        return self._tried(name, number, workload, candidate, regimes, SCREEN_EFFORT, False)

    def judge(self, number: int, workload: ProblemWorkload, candidate: Candidate) -> Task:
        """Judge a finalist with all there is, and time nothing."""
        return self._tried(f"judge {number}", number, workload, candidate, (), FULL_EFFORT, True)

    def finals(
        self,
        process: int,
        finals: Sequence[Final],
        regimes: Sequence[Regime],
        launches: Sequence[Mapping[str, int]] | None,
        name: str = "finals",
    ) -> Task:
        """Samples of a hold-out, of one fresh process for all finalists.

        Args:
            process: its number, from 0.
            finals: what is timed, each beside its baseline.
            regimes: in each of them.
            launches: of each final, n of each regime, as the first process chose them.
            name: of the task.
        """
        asked = {
            "finals": [{"workload": plain(w), "candidate": plain(c)} for w, c in finals],
            "regimes": _words(regimes),
            "process": process,
            "pairs": self.options.pairs,
            "launches": None if launches is None else [dict(one) for one in launches],
        }
        timeout = self.options.finals_timeout_s
        return self._task(f"{name} {process}", FINALS, asked, timeout, fresh=True)

    def explain(
        self,
        finals: Sequence[Final],
        regimes: Sequence[Regime],
        left_s: float | None = None,
        name: str = "explain",
    ) -> Task:
        """What launches of finalists and of their baselines read, by counters.

        Args:
            finals: what is counted, each beside its baseline.
            regimes: in each of them; cold always.
            left_s: until the minutes are over; `None` = there is no limit.
            name: of the task.
        """
        asked = {
            "finals": [{"workload": plain(w), "candidate": plain(c)} for w, c in finals],
            "regimes": _words(regimes),
        }
        most_s = self.options.finals_timeout_s
        timeout_s = most_s if left_s is None else min(most_s, max(left_s, 1.0))
        return self._task(name, EXPLAIN, asked, timeout_s)

    def compile(self, heads: Sequence[Head], budget_s: float) -> Task:
        """What heads of spaces compile to, for the GPU and without running them."""
        spaces = [
            {
                "workload": plain(workload),
                "implementation": space.implementation,
                "format": space.format,
                "configs": [dict(one) for one in configs],
            }
            for workload, space, configs in heads
        ]
        timeout_s = self.options.compile_timeout_s
        asked = {"spaces": spaces, "budget_s": budget_s, "timeout_s": timeout_s}
        return self._task("compile", COMPILE, asked, budget_s + STARTS_S)

    def diagnose(
        self,
        sides: Sequence[tuple[ProblemWorkload, Candidate | None]],
        regime: Regime,
        timeout_s: float,
    ) -> Task:
        """What limits candidates, or baselines (`None`), in a regime; by counters."""
        rows = [
            {"workload": plain(w), "candidate": None if c is None else plain(c)} for w, c in sides
        ]
        asked = {"sides": rows, "regime": regime.value, "timeout_s": timeout_s}
        return self._task("diagnose", DIAGNOSE, asked, timeout_s + STARTS_S)

    def sanitize(self, number: int, workload: ProblemWorkload, candidate: Candidate) -> Task:
        """One call of a finalist under each tool of compute-sanitizer."""
        timeout_s = self.options.finals_timeout_s
        asked = {"workload": plain(workload), "candidate": plain(candidate)}
        asked["timeout_s"] = timeout_s
        most_s = len(SANITIZER_TOOLS) * timeout_s + STARTS_S
        return self._task(f"sanitize {number}", SANITIZE, asked, most_s)

    def _tried(
        self,
        identifier: str,
        number: int,
        workload: ProblemWorkload,
        candidate: Candidate,
        regimes: Sequence[Regime],
        effort: Mapping[str, int | float],
        elsewhere: bool,
    ) -> Task:
        asked = {
            "workload": plain(workload),
            "candidate": plain(candidate),
            "regimes": _words(regimes),
            "effort": dict(effort),
            "elsewhere": elsewhere,
            "number": number,
        }
        return self._task(identifier, SCREEN, asked, self.options.run_timeout_s)

    def _task(
        self,
        identifier: str,
        function: str,
        asked: Mapping[str, Any],
        run_timeout_s: float,
        fresh: bool = False,
    ) -> Task:
        common = {
            "source": plain(self.source),
            "device": self.device,
            "seed": self.seed,
            "budget_pct": self.budget_pct,
            "calibration": self.calibration,
            "minimum_effect": self.options.minimum_effect,
        }
        compile_timeout_s = self.options.compile_timeout_s
        return Task(
            identifier,
            f"{self.module}:{function}",
            {**common, **asked},
            compile_timeout_s,
            run_timeout_s,
            fresh,
        )


def _words(regimes: Sequence[Regime]) -> list[str]:
    return [regime.value for regime in regimes]
