"""A step three ways in turns, each in a CUDA graph: as it is, under torch.compile, with a table on.

python benchmarks/steps/comparing.py PROGRAM TABLE PROCESS     # a line of JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

PROCESSES, BLOCKS, STEPS = 5, 16, 20
WAYS = ("eager", "compiled", "applied")
COMPILED = "max-autotune-no-cudagraphs"


def compare(target: str, table: Path, rows: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Three ways in turns, in fresh processes; those that were sampled before are kept.

    Args:
        target: `FILE:FUNCTION`.
        table: the dispatch table.
        rows: a file of the samples of every process.
        tell: told in a line.
    """
    found = json.loads(rows.read_text()) if rows.exists() else []
    for process in range(len(found), PROCESSES):
        command = [sys.executable, __file__, target, str(table), str(process)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        part = rows.with_suffix(".part")
        part.write_text(json.dumps(found))
        part.replace(rows)
        tell(f"compare: process {process + 1} of {PROCESSES}")
    return summed(found)


def sample(target: str, path: Path) -> dict[str, Any]:
    """The times of one process."""
    import torch

    from kernel_compass.api.applying import applied_actions
    from kernel_compass.api.step_program import Program, ProgramKind, open_step
    from kernel_compass.codec.canonical import plain
    from kernel_compass.measurement.step_timer import CudaClock
    from kernel_compass.optimizer.dispatch_file import read_table
    from kernel_compass.profiling.step_measuring import environment
    from kernel_compass.records.step_action import StepActionKind
    from kernel_compass.validation.step_outputs import compare as compared
    from kernel_compass.validation.step_outputs import kept

    table = read_table(path) if path.exists() else None
    # the graph is ours here: all three are captured alike
    graph = StepActionKind.STEP_GRAPH
    actions = [one.action for one in table.steps if one.action.kind is not graph] if table else []
    step: Any = open_step(Program(ProgramKind.ENTRY, target))
    clock = CudaClock(torch, environment(torch, True), graph=True)
    with ExitStack() as stack:
        reference = kept(step.call())
        replays = {"eager": _captured(torch, step.call)}
        torch._dynamo.reset()
        compiled = torch.compile(step.call, mode=COMPILED)
        replays["compiled"] = _captured(torch, compiled)
        errors = {"compiled": _error(compared(reference, kept(compiled()), False))}
        before = torch.cuda.memory_allocated()
        stack.enter_context(applied_actions(actions, step))
        errors["applied"] = _error(compared(reference, kept(step.call()), False))
        replays["applied"] = _captured(torch, step.call)
        added = torch.cuda.memory_allocated() - before
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(BLOCKS):
            block: dict[str, list[float]] = {way: [] for way in WAYS}
            for way in (*WAYS, *reversed(WAYS)):
                block[way].append(clock.elapsed_us(replays[way], STEPS) / STEPS)
            for way in WAYS:
                times[way].append(sum(block[way]) / 2)
    here = plain(replace(environment(torch, True)))
    return {"times_us": times, "errors_pct": errors, "added_bytes": added, "environment": here}


def _captured(torch: Any, call: Callable[[], Any]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Callable[[], None] = graph.replay
    return replay


def _error(found: Any) -> float | None:
    errors, wrong = found
    return None if wrong is not None else max(one.relative_pct for one in errors)


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the samples of all processes come to."""
    from kernel_compass.analysis.hold_out import hold_out
    from kernel_compass.records.comparison import Rule
    from kernel_compass.records.measurement import LaunchMode, PairedSamples
    from kernel_compass.records.profile import Regime

    def ratio(one: str, other: str) -> dict[str, Any]:
        samples = [
            PairedSamples(
                tuple(row["times_us"][one]),
                tuple(row["times_us"][other]),
                Regime.IN_SITU,
                LaunchMode.GRAPH,
                STEPS,
                process,
            )
            for process, row in enumerate(rows)
        ]
        found = hold_out(samples, Rule(hold_out_processes=PROCESSES))
        s = found.speedup
        return {"decision": found.decision.value, "x": [s.low, s.estimate, s.high]}

    times = {way: median(time for row in rows for time in row["times_us"][way]) for way in WAYS}
    return {
        "times_us": times,
        "applied_over_eager": ratio("eager", "applied"),
        "applied_over_compiled": ratio("compiled", "applied"),
        "compiled_over_eager": ratio("eager", "compiled"),
        "errors_pct": rows[0]["errors_pct"],
        "added_bytes": rows[0]["added_bytes"],
        "environment": rows[0]["environment"],
        "processes": [row["times_us"] for row in rows],
    }


def text(found: Mapping[str, Any]) -> str:
    """In a few lines."""
    words = []
    for name in ("applied_over_eager", "applied_over_compiled", "compiled_over_eager"):
        low, x, high = found[name]["x"]
        words.append(f"  {name.replace('_', ' ')}: {x:.3f}x [{low:.3f}, {high:.3f}]")
    row = ", ".join(f"{way} {found['times_us'][way]:.1f} us" for way in WAYS)
    tail = f"  error {found['errors_pct']}, {found['added_bytes'] / 2**20:.0f} MiB more"
    return "\n".join([f"  in a CUDA graph: {row}", *words, tail])


if __name__ == "__main__":
    print(json.dumps(sample(sys.argv[1], Path(sys.argv[2]))))
