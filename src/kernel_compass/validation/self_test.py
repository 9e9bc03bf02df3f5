"""The judge proves itself: every cheat that can be staged is caught by name, or nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation import judge as judge_module
from kernel_compass.validation import self_test_problem
from kernel_compass.validation.cheat_parts import Cheat, FunctionRunner, honest
from kernel_compass.validation.cheats_by_threads import THREAD_CHEATS
from kernel_compass.validation.cheats_of_conduct import CONDUCT_CHEATS
from kernel_compass.validation.cheats_of_memory import MEMORY_CHEATS
from kernel_compass.validation.cheats_of_process import PROCESS_CHEATS
from kernel_compass.validation.cheats_of_results import RESULT_CHEATS
from kernel_compass.validation.judge_contracts import Effort, Judgement, Machine
from kernel_compass.validation.watch import Watch

ALL_CHEATS = (
    *RESULT_CHEATS,
    *MEMORY_CHEATS,
    *CONDUCT_CHEATS,
    *PROCESS_CHEATS,
    *THREAD_CHEATS,
)
"""What is staged, as far as the device can."""
EFFORT = Effort(seeds=2, repeats=40, repeat_s=30.0)
"""All repeats, on a busy machine too: one cheat in it is wrong at every seventeenth call."""


@dataclass(frozen=True)
class CheatResult:
    """What the judge said to one cheat."""

    name: str
    expected: tuple[Reason, ...]
    found: Reason | None
    detail: str

    @property
    def caught(self) -> bool:
        """Whether it was rejected by one of its names."""
        return self.found in self.expected


@dataclass(frozen=True)
class SelfTest:
    """What came of all of them."""

    results: tuple[CheatResult, ...]
    not_staged: tuple[str, ...]
    """Cheats that need a GPU."""
    honest_rejected: str | None
    """Why the honest candidate was rejected; `None` = it was not."""

    @property
    def passed(self) -> bool:
        """Whether a study may run."""
        return self.honest_rejected is None and all(one.caught for one in self.results)


def self_test(
    torch: Any, machine: Machine, on_result: Callable[[CheatResult], None] = lambda _: None
) -> SelfTest:
    """Judge the honest candidate and all cheats.

    Args:
        torch: the module.
        machine: the device.
        on_result: told of each.
    """
    fair = _judged(torch, machine, honest)
    results, skipped = [], []
    for cheat in ALL_CHEATS:
        if cheat.device == "cuda" and machine.kind != "cuda":
            skipped.append(cheat.name)
            continue
        said = _judged(torch, machine, cheat.make, cheat)
        ordered = tuple(sorted(cheat.reasons, key=lambda r: r.value))
        results.append(CheatResult(cheat.name, ordered, said.reason, said.detail))
        on_result(results[-1])
    rejected = None if fair.reason is None else f"{fair.reason.value}: {fair.detail}"
    return SelfTest(tuple(results), tuple(skipped), rejected)


def _judged(torch: Any, machine: Machine, make: Any, cheat: Cheat | None = None) -> Judgement:
    problem = self_test_problem.SelfTestProblem(torch, "cuda" if machine.kind == "cuda" else "cpu")
    watch = Watch(torch, machine.carve_out_bytes)
    try:
        return judge_module.judge(
            torch,
            problem,
            problem.workload,
            lambda: FunctionRunner(make(torch, problem)),
            machine,
            watch,
            EFFORT,
        )
    finally:
        if cheat is not None and cheat.undo is not None:
            cheat.undo(torch)
