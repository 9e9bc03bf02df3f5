"""Samples of a hold-out: every final timed in each of some fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_compass.codec.canonical import reshaped
from kernel_compass.optimizer.loop_setup import ends_of
from kernel_compass.optimizer.loop_tasks import Final, TaskMaker
from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.profile import Regime


def hold_out_samples(
    executor: Executor,
    tasks: TaskMaker,
    finals: Sequence[Final],
    regimes: Sequence[Regime],
    name: str,
    on_process: Callable[[int, int], None],
) -> list[list[PairedSamples]] | TaskEnd:
    """Samples of each final, process by process; or the end of the process that failed.

    Args:
        executor: where they run.
        tasks: makes the tasks; its options say how many processes.
        finals: what is timed, each beside its baseline.
        regimes: in each of them.
        name: of the tasks.
        on_process: told how many have ended, and how many there are.
    """
    by_process: dict[int, Sequence[Mapping[str, Any]]] = {}
    launches: list[Mapping[str, int]] | None = None
    processes = tasks.options.processes
    # The first process chooses how many launches a replay has; the others do alike.
    for numbers in ((0,), tuple(range(1, processes))):
        asked = [tasks.finals(p, finals, regimes, launches, name) for p in numbers]
        for end in ends_of(executor, asked):
            if end.answer is None:
                return end
            by_process[int(end.identifier.rpartition(" ")[2])] = end.answer["finals"]
            on_process(len(by_process), processes)
        first = [part["samples"] for part in by_process[0]]
        launches = [{s["regime"]: s["launches_per_replay"] for s in one} for one in first]
    return [
        [
            reshaped(sample, PairedSamples)
            for process in sorted(by_process)
            for sample in by_process[process][index]["samples"]
        ]
        for index in range(len(finals))
    ]
