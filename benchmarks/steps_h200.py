r"""Users' programs made faster on this GPU: what was foretold beside what was obtained.

    python benchmarks/steps_h200.py decoder --phase decode --budget 1 --minutes 9
    python benchmarks/steps_h200.py served --budget 5 --minutes 9
    python benchmarks/steps_h200.py decoder --formats bf16 --minutes 9   # kept in decode-1-bf16
    python benchmarks/steps_h200.py mla|encoder|moe|triton --minutes 9
    python benchmarks/steps_h200.py kernelbench --files 3 --minutes 9
    python benchmarks/steps_h200.py all --minutes 60
    python benchmarks/steps_h200.py table
    python benchmarks/steps_h200.py predictions

Each keeps what it finds below --folder (benchmarks/results/h200/steps) and goes on there when it is
called again: a study that was ended, a comparison, a space half measured. Progress is told with the
seconds since the start; a short table ends each call, and the exit code is 1 while something of it
is missing or does not hold. --minutes ends a study in good order; the change that is being tried
then, and the five processes that confirm, are waited for.

Seconds on an H200, estimated (a process with torch and the program takes 10 to 20 to start, a
compiled region 20 to 60, a study of a product 90; of these the decoder block has run there):

    decoder      450 for each phase and budget (study 350, comparison in five processes 100)
    served       400   mla       450   encoder   400   moe   300 (most of it 64 experts compiling)
    triton       300 for the study, 400 for the spaces (460 configurations, compiled 14 at a time)
    kernelbench  150 a file, 1,500 for the ten
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps import comparing, kernelbench_runs, predicting, triton_space
from steps.studying import Run, studied, table_text

from kernel_compass import api
from kernel_compass.api.step_program import program_of
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.step_loop import StepOptions

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "h200" / "steps"
PROGRAMS = HERE / "steps"
LEAST_LEFT_S = 30.0
"""Nothing new is begun with less left."""


@dataclass(frozen=True)
class Asked:
    """What a call is about."""

    folder: Path
    budget_pct: float
    minutes: float
    device: str = "cuda"
    phase: str = "decode"
    files: int = 10
    trials: int | None = None
    most: int | None = None
    """Of a size of a problem's file."""
    words: tuple[str, ...] = ()
    """Arguments of the program."""
    options: StepOptions = field(default_factory=StepOptions)
    write: bool = False
    product_minutes: float = 1.5
    formats: tuple[str, ...] = ()
    """Of products; none = all."""
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        return 60 * self.minutes - (time.monotonic() - self.began)

    @property
    def suffix(self) -> str:
        """Of a folder: a run in some formats alone is another one."""
        return "".join(f"-{one}" for one in self.formats)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.0f} s] {text}", file=sys.stderr, flush=True)


def run_of(asked: Asked, name: str, script: str | None = None, entry: str | None = None) -> Run:
    """A study of one of the programs."""
    file = None if script is None else str(PROGRAMS / script)
    function = None if entry is None else str(PROGRAMS / entry)
    return Run(
        program_of(file, None, function, asked.words),
        asked.folder / f"{name}-{asked.budget_pct:g}{asked.suffix}",
        asked.budget_pct,
        asked.left_s / 60,
        asked.device,
        asked.trials,
        asked.options,
        asked.product_minutes,
        asked.formats,
    )


def study(name: str, script: str) -> Callable[[Asked], bool]:
    """A subcommand that studies one script."""

    def function(asked: Asked) -> bool:
        found = studied(run_of(asked, name, script), name, asked.say)
        print(table_text([found]))
        return complete(found)

    return function


def complete(found: dict[str, Any]) -> bool:
    """Whether a study is at its end, and what it accepted holds."""
    return bool(found["finished"] and found["replay"] and found["replay"]["holds"])


def decoder(asked: Asked) -> bool:
    """The decoder block in plain PyTorch; then eager, compiled and with the changes, in turns."""
    run = run_of(asked, asked.phase, entry=f"decoder.py:{asked.phase}")
    found = studied(run, asked.phase, asked.say)
    print(table_text([found]))
    path = run.folder / "compare.json"
    if asked.device != "cpu" and not path.exists() and asked.left_s > LEAST_LEFT_S:
        rows = run.folder / "compare.samples.json"
        three = comparing.compare(run.program.target, run.table, rows, asked.say)
        path.write_text(json.dumps(three, indent=1) + "\n")
    if path.exists():
        print(comparing.text(json.loads(path.read_text())))
    return complete(found) and (path.exists() or asked.device == "cpu")


def triton(asked: Asked) -> bool:
    """Poor configurations: the loop's choice beside the best of the same space."""
    run = run_of(asked, "triton", entry="poor_triton.py:step")
    found = studied(run, "triton", asked.say)
    print(table_text([found]))
    kept = api.study(str(run.ledger)).step
    actions = [one.proposal.action for one in kept.kept] if kept and kept.entries else []
    chosen = {one.target.kernel: dict(one.config) for one in actions if one.target.kernel}
    spaces = {}
    for launch in launches(asked, run):
        space = triton_space.space_of(launch)
        rows, until = run.folder / f"{launch.kernel}.jsonl", asked.began + 60 * asked.minutes
        times = triton_space.read(rows)
        if len(times) < len(space) and asked.left_s > LEAST_LEFT_S:
            times = triton_space.measured(launch.kernel, space, rows, asked.words, until, asked.say)
        one = triton_space.summed(times, len(space), chosen.get(launch.kernel))
        spaces[launch.kernel] = {**one, "autotuned": bool(launch.choices)}
        print(_space_line(launch.kernel, spaces[launch.kernel]))
    (run.folder / "spaces.json").write_text(json.dumps(spaces, indent=1) + "\n")
    return complete(found) and all(one["complete"] and one["within"] for one in spaces.values())


def launches(asked: Asked, run: Run) -> Sequence[Any]:
    """The program's kernels as it launches them, each once."""
    from kernel_compass.api.step_capturing import capture_program
    from kernel_compass.api.step_planning import read_capture
    from kernel_compass.codec.step_capture_document import packed

    path = run.folder / "capture.json.gz"
    if not path.exists():
        asked.say("capturing the launches")
        path.write_bytes(packed(capture_program(run.program, target_stdout=2)))
    found = {one.kernel: one for one in read_capture(path).launches}
    return tuple(found.values())


def _space_line(kernel: str, one: dict[str, Any]) -> str:
    if one["behind"] is None:
        return f"  {kernel}: {one['measured']} of {one['space']} measured"
    state = "" if one["complete"] else f" so far, {one['measured']} of {one['space']} measured"
    now = f"{one['untouched_us']:.1f} us" if one["untouched_us"] else "no time"
    return (
        f"  {kernel}: untouched {now}, now {one['chosen_us']:.1f} us, best of "
        f"{one['space']} {one['best_us']:.1f} us: {one['behind']:.3f}{state}"
    )


def kernelbench(asked: Asked) -> bool:
    """Files as KernelBench has them, so many a call."""
    paths, rows, begun = kernelbench_runs.problem_files(), [], 0
    for path in paths:
        folder = asked.folder / f"kernelbench{asked.suffix}" / path.stem
        fresh = not (folder / "result.json").exists()
        if fresh and (begun >= asked.files or asked.left_s < LEAST_LEFT_S):
            continue
        begun += fresh
        left = max(asked.left_s / 60 / max(asked.files - begun + 1, 1), 0.5)
        words = ["--device", asked.device]
        words += [] if asked.trials is None else ["--trials", str(asked.trials)]
        words += ["--formats", ",".join(asked.formats)] if asked.formats else []
        asked.say(path.name)
        file = path if asked.most is None else kernelbench_runs.copied(path, folder, asked.most)
        rows.append(kernelbench_runs.optimized(file, folder, left, words, asked.say))
    print(table_text(rows))
    slower = [one["program"] for one in rows if not one["never_slower"]]
    print(
        f"{len(rows)} of {len(paths)} files; slower or not at an end: {', '.join(slower) or 'none'}"
    )
    found = {"files": rows, "complete": len(rows) == len(paths), "never_slower": not slower}
    (asked.folder / f"kernelbench{asked.suffix}.json").write_text(
        json.dumps(found, indent=1) + "\n"
    )
    return len(rows) == len(paths) and not slower


COMMANDS: dict[str, Callable[[Asked], bool]] = {
    "decoder": decoder,
    "served": study("served", "served_block.py"),
    "mla": study("mla", "mla_decode.py"),
    "encoder": study("encoder", "encoder.py"),
    "moe": study("moe", "moe.py"),
    "triton": triton,
    "kernelbench": kernelbench,
}
ALL = (
    ("triton", "decode", 1.0, 12.0),
    ("mla", "decode", 1.0, 8.0),
    ("served", "decode", 1.0, 7.0),
    ("encoder", "decode", 1.0, 7.0),
    ("moe", "decode", 1.0, 6.0),
    ("decoder", "decode", 1.0, 8.0),
    ("decoder", "prefill", 1.0, 8.0),
    ("decoder", "decode", 5.0, 10.0),
    ("decoder", "prefill", 5.0, 10.0),
    ("served", "decode", 5.0, 9.0),
    ("mla", "decode", 5.0, 10.0),
    ("encoder", "decode", 5.0, 9.0),
    ("kernelbench", "decode", 1.0, 25.0),
)
"""In the order of `all`: subcommand, phase, budget in percent, minutes at most."""


def everything(asked: Asked) -> bool:
    """One after the other, as far as the minutes go."""
    ends = []
    for name, phase, budget, minutes in ALL:
        left = asked.left_s / 60
        if left < LEAST_LEFT_S / 60:
            asked.say("the minutes are over; call again to go on")
            return False
        asked.say(f"{name} {phase if name == 'decoder' else ''} at {budget:g} %")
        one = Asked(
            asked.folder,
            budget,
            min(minutes, left),
            asked.device,
            phase,
            formats=asked.formats,
        )
        try:
            ends.append(COMMANDS[name](one))
        except Exception as error:  # the others go on
            asked.say(f"{name} ended: {type(error).__name__}: {error}")
            ends.append(False)
    return all(ends)


def table(asked: Asked) -> bool:
    """All that was kept."""
    rows = [json.loads(path.read_text()) for path in sorted(asked.folder.glob("*/result.json"))]
    print(table_text(rows))
    for path in sorted(asked.folder.glob("*/compare.json")):
        print(path.parent.name + "\n" + comparing.text(json.loads(path.read_text())))
    for path in sorted(asked.folder.glob("*/spaces.json")):
        for kernel, one in json.loads(path.read_text()).items():
            print(_space_line(kernel, one))
    benches = sorted(asked.folder.glob("kernelbench*/*/result.json"))
    print(table_text([json.loads(path.read_text()) for path in benches]))
    return True


def predictions(asked: Asked) -> bool:
    """What is foretold, computed anew; kept where that is asked for."""
    if asked.write:
        predicting.write()
    for one in predicting.document()["programs"].values():
        print(predicting.text(one))
    return True


def formats_of(text: str) -> tuple[str, ...]:
    """Number formats in a list with commas, each once."""
    return tuple(
        dict.fromkeys(NumberFormat.parse(one).name for one in text.split(",") if one.strip())
    )


def main(words: Sequence[str] | None = None) -> int:
    given, own = list(sys.argv[1:] if words is None else words), ()
    if "--" in given:
        at = given.index("--")
        given, own = given[:at], tuple(given[at + 1 :])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {**COMMANDS, "all": everything, "table": table, "predictions": predictions}
    parser.add_argument("what", choices=tuple(commands))
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--budget", type=float, default=1.0, help="percent")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--phase", choices=("decode", "prefill"), default="decode")
    parser.add_argument("--files", type=int, default=3, help="of kernelbench, in this call")
    parser.add_argument("--trials", type=int, help="of a study, at most")
    parser.add_argument("--most", type=int, help="kernelbench: copies with no size over this")
    parser.add_argument("--quick", action="store_true", help="three processes confirm")
    parser.add_argument("--product-minutes", type=float, default=1.5, help="of one product's study")
    parser.add_argument("--formats", default="", help="of products, with commas; all if not named")
    parser.add_argument("--write", action="store_true", help="of predictions: keep them")
    a = parser.parse_args(given)
    folder = a.folder.resolve()
    if a.what in (*COMMANDS, "all"):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("KERNEL_COMPASS_HOME", str(folder / "home"))
    options = StepOptions(processes=3) if a.quick else StepOptions()
    asked = Asked(
        folder,
        a.budget,
        a.minutes,
        a.device,
        a.phase,
        a.files,
        a.trials,
        a.most,
        own,
        options,
        a.write,
        a.product_minutes,
        formats_of(a.formats),
    )
    try:
        return 0 if commands[a.what](asked) else 1
    except KeyboardInterrupt:
        asked.say("stopped; call again to go on")
        return 130


if __name__ == "__main__":
    sys.exit(main())
