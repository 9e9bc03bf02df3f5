"""The step of examples/decoder_block.py made faster without an edit, beside torch.compile.

    python benchmarks/decoder_step.py study --phase decode --budget 1       # optimize; minutes
    python benchmarks/decoder_step.py compare --phase decode --budget 1     # three ways, one run
    python benchmarks/decoder_step.py table                                 # all that was measured

`study` runs `kernel-compass optimize` on the block in plain PyTorch and keeps its table, its study
and its recording. `compare` times three CUDA graphs of the same block in turns, in fresh processes:
as it is, under torch.compile(mode="max-autotune-no-cudagraphs"), and with the study's changes.
Results go to benchmarks/results/h200/steps/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "h200" / "steps"
sys.path.insert(0, str(HERE.parent / "examples"))
sys.path.insert(0, str(HERE.parent / "src"))

PROCESSES, BLOCKS, STEPS = 5, 16, 20
WAYS = ("eager", "compiled", "applied")
COMPILED = "max-autotune-no-cudagraphs"


def decode() -> Callable[[], Any]:
    """The step of `--entry benchmarks/decoder_step.py:decode`."""
    return _step("decode")


def prefill() -> Callable[[], Any]:
    """The step of `--entry benchmarks/decoder_step.py:prefill`."""
    return _step("prefill")


def _step(phase: str) -> Callable[[], Any]:
    import torch
    from decoder_block import PHASES, make_block, make_input

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    block = make_block(PHASES[phase], device)
    with torch.inference_mode(False), torch.no_grad():
        x = make_input(block)

    def step() -> Any:
        with torch.no_grad():
            return block(x)

    return step


def study(args: argparse.Namespace) -> int:
    """Optimize the step; keep table, study and recording."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = _name(args)
    table = RESULTS / f"{name}.compass.json"
    command = [sys.executable, "-m", "kernel_compass.cli.main", "optimize"]
    command += ["--entry", f"{Path(__file__).resolve()}:{args.phase}", "--yes"]
    command += ["--budget", f"{args.budget:g}%", "--minutes", f"{args.minutes:g}"]
    command += ["--device", args.device, "--table", str(table)]
    command += ["--record", str(RESULTS / f"{name}.recording.json.gz")]
    table.unlink(missing_ok=True)
    code = subprocess.run(command, check=False).returncode
    export = [sys.executable, "-m", "kernel_compass.cli.main", "export", "last", "-o"]
    subprocess.run([*export, str(RESULTS / f"{name}.study.json")], check=False)
    return code


def compare(args: argparse.Namespace) -> int:
    """Three ways in turns, in fresh processes."""
    rows = []
    for process in range(PROCESSES):
        command = [sys.executable, __file__, "sample", "--phase", args.phase]
        command += ["--budget", f"{args.budget:g}", "--process", str(process)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"process {process} ended with {done.returncode}", file=sys.stderr)
            return done.returncode
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"process {process + 1} of {PROCESSES}", file=sys.stderr, flush=True)
    found = _summed(args, rows)
    path = RESULTS / f"{_name(args)}.compare.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(_text(found))
    return 0


def sample(args: argparse.Namespace) -> int:
    """The times of one process, as a line of JSON."""
    import torch

    from kernel_compass.api.applying import applied_actions
    from kernel_compass.api.step_program import Program, ProgramKind, open_step
    from kernel_compass.measurement.step_timer import CudaClock
    from kernel_compass.optimizer.dispatch_file import read_table
    from kernel_compass.profiling.step_measuring import environment
    from kernel_compass.records.step_action import StepActionKind
    from kernel_compass.validation.step_outputs import compare as compared
    from kernel_compass.validation.step_outputs import kept

    table = read_table(RESULTS / f"{_name(args)}.compass.json")
    # the graph is ours here: all three are captured alike
    graph = StepActionKind.STEP_GRAPH
    actions = [one.action for one in table.steps if one.action.kind is not graph]
    target = f"{Path(__file__).resolve()}:{args.phase}"
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
    row = {"times_us": times, "errors_pct": errors, "added_bytes": added}
    print(json.dumps({**row, "environment": _plain(environment(torch, True))}))
    return 0


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


def _summed(args: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
        "phase": args.phase,
        "budget_pct": args.budget,
        "times_us": times,
        "applied_over_eager": ratio("eager", "applied"),
        "applied_over_compiled": ratio("compiled", "applied"),
        "compiled_over_eager": ratio("eager", "compiled"),
        "errors_pct": rows[0]["errors_pct"],
        "added_bytes": rows[0]["added_bytes"],
        "environment": rows[0]["environment"],
        "processes": [row["times_us"] for row in rows],
    }


def _text(found: Mapping[str, Any]) -> str:
    times, words = found["times_us"], []
    for name in ("applied_over_eager", "applied_over_compiled", "compiled_over_eager"):
        low, x, high = found[name]["x"]
        words.append(f"  {name.replace('_', ' ')}: {x:.3f}x [{low:.3f}, {high:.3f}]")
    row = ", ".join(f"{way} {times[way]:.1f} us" for way in WAYS)
    head = f"{found['phase']} at {found['budget_pct']:g} %, all in a CUDA graph: {row}"
    tail = f"  error {found['errors_pct']}, {found['added_bytes'] / 2**20:.0f} MiB more"
    return "\n".join([head, *words, tail])


def table(_: argparse.Namespace) -> int:
    """All comparisons that were kept."""
    for path in sorted(RESULTS.glob("*.compare.json")):
        print(_text(json.loads(path.read_text())))
    return 0


def _plain(record: Any) -> Any:
    from kernel_compass.codec.canonical import plain

    return plain(replace(record))


def _name(args: argparse.Namespace) -> str:
    return f"{args.phase}-{args.budget:g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in (("study", study), ("compare", compare), ("sample", sample)):
        one = commands.add_parser(name)
        one.set_defaults(function=function)
        one.add_argument("--phase", choices=("decode", "prefill"), default="decode")
        one.add_argument("--budget", type=float, default=1.0, help="percent")
        one.add_argument("--minutes", type=float, default=8.0)
        one.add_argument("--device", default="cuda")
        one.add_argument("--process", type=int, default=0)
    commands.add_parser("table").set_defaults(function=table)
    args = parser.parse_args()
    return int(args.function(args))


if __name__ == "__main__":
    sys.exit(main())
