r"""Does `optimize` keep its promise on this GPU: in time, holding under replay, near the best?

    python benchmarks/record_space.py --shapes bmm:128x64x128x512:w8a16_fp8,... --folder SPACES
    python benchmarks/record_loop.py mla:deepseek-v3 --tokens 1,16,64 --output UNION.json.gz
    python benchmarks/optimize_h200.py run --folder OUT
    python benchmarks/optimize_h200.py compare --folder OUT \
        [--union UNION.json.gz] [--spaces SPACES]

Rivals come from what was measured beside the study: `record_space.py` measures every configuration
of an implementation, `record_loop.py` the best by estimate of every provider's. `compare` takes
the best `--rivals` of each workload of either; the best of a recorded space in every format of
`--formats` too, as two formats of as many bits share their kernels. `run` runs the command and
`replay` in processes of their own and writes what they said. `compare` holds out the choice and
its rivals together, in the same fresh processes, and says how far the choice is from the best:
within 3 % is the promise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernel_compass.analysis.hold_out import confirm
from kernel_compass.api.evaluating import __name__ as EVALUATING
from kernel_compass.api.loop_place import placed
from kernel_compass.api.studies import study
from kernel_compass.codec import loop_recording, recorded_space
from kernel_compass.optimizer.hold_out_samples import hold_out_samples
from kernel_compass.optimizer.loop_answers import geometric_mean
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.records.comparison import Rule
from kernel_compass.records.execution import TaskEnd
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.loop_recording import RecordedWorkload
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Workload

PROMISED_S, WITHIN = 300.0, 1.03
TARGET, TOKENS = "mla:deepseek-v3", "1,16,64"


@dataclass(frozen=True)
class Row:
    """A workload: the choice beside the best of the union."""

    workload: str
    chosen: str | None
    """`None` = nothing was accepted: the baseline stays."""
    speedup: float
    best: str
    best_speedup: float
    held_out: int
    """How many candidates were held out together."""

    @property
    def behind(self) -> float:
        return self.best_speedup / self.speedup


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("run", "compare"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--union", type=Path)
    parser.add_argument("--spaces", type=Path)
    parser.add_argument("--formats", default="w8a16_fp8,w8a16_int8")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tokens", default=TOKENS)
    parser.add_argument("--rivals", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=4.8)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    os.environ["KERNEL_COMPASS_HOME"] = str((a.folder / "home").resolve())
    if a.what == "run":
        return _run(a)
    if a.union is None and a.spaces is None:
        parser.error("compare needs --union or --spaces")
    return _compare(a)


def _run(a: argparse.Namespace) -> int:
    command = [sys.executable, "-m", "kernel_compass"]
    asked = ["optimize", TARGET, "--tokens", a.tokens, "--budget", "3%", "--device", a.device]
    table = ["--table", str(a.folder / "compass.json"), "--minutes", str(a.minutes), "--json-lines"]
    if a.device.startswith("cuda"):
        proof = [*command, "validate", "--self-test", "--device", a.device, "--json"]
        said = subprocess.run(proof, stdout=subprocess.PIPE, check=True).stdout
        (a.folder / "self_test.json").write_bytes(said)
    start = time.monotonic()
    with (a.folder / "optimize.jsonl").open("w") as out:
        code = subprocess.run([*command, *asked, *table], stdout=out, check=False).returncode
    wall_s = time.monotonic() - start
    start = time.monotonic()
    replay = subprocess.run(
        [*command, "replay", "last", "--json"], capture_output=True, check=False
    )
    (a.folder / "replay.json").write_bytes(replay.stdout)
    sys.stderr.write(replay.stderr.decode())
    found = {
        "optimize_exit": code,
        "optimize_s": wall_s,
        "in_time": wall_s <= PROMISED_S,
        "accepted": len(study("last").accepted),
        "replay_exit": replay.returncode,
        "replay_s": time.monotonic() - start,
    }
    (a.folder / "run.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0 if code == 0 and found["in_time"] and replay.returncode == 0 else 1


def _compare(a: argparse.Namespace) -> int:
    recorded = study("last")
    chosen = {one.workload: one.proposal.candidate for one in recorded.accepted}
    request = recorded.study.request
    request = replace(request, options={**request.options, "device": a.device})
    with placed(request, "comparison") as place:
        options = LoopOptions()
        maker = TaskMaker(
            EVALUATING, request.source, place.device, 1, 3.0, options, place.calibration
        )
        finals: list[tuple[ProblemWorkload, Candidate]] = []
        for workload in place.problem.workloads:
            mine = [chosen[workload.name]] if workload.name in chosen else []
            rivals = [one for one in _rivals(a, workload) if one not in mine]
            if not rivals:
                print(f"{workload.name}: nothing was recorded", flush=True)
                continue
            finals += [(workload, one) for one in [*mine, *rivals]]
        found = hold_out_samples(
            place.executor,
            maker,
            finals,
            request.regimes,
            "comparison",
            lambda done, of: print(f"process {done} of {of}", file=sys.stderr, flush=True),
        )
        if isinstance(found, TaskEnd):
            sys.exit(str(found.failure))
    rows = []
    for name in dict.fromkeys(workload.name for workload, _ in finals):
        taken = [(c, s) for (w, c), s in zip(finals, found, strict=True) if w.name == name]
        rows.append(_row(name, [c for c, _ in taken], [s for _, s in taken], chosen.get(name)))
        print(_line(rows[-1]), flush=True)
    document = [{**asdict(row), "behind": row.behind} for row in rows]
    (a.folder / "compare.json").write_text(json.dumps(document, indent=2) + "\n")
    return 0 if rows and all(row.behind <= WITHIN for row in rows) else 1


def _rivals(a: argparse.Namespace, workload: ProblemWorkload) -> list[Candidate]:
    """The best of what was recorded, by the geometric mean over the regimes."""
    found: list[Candidate] = []
    for one in loop_recording.read(a.union).workloads if a.union else ():
        if one.workload.name == workload.name:
            found += _best(one, a.rivals)
    for file in sorted(a.spaces.glob("*.json.gz")) if a.spaces else ():
        space = recorded_space.read(file)
        if workload.product is None or _sizes(space.workload) != _sizes(workload.product):
            continue
        if not space.complete:
            print(f"{file.name}: {len(space.points)} of {space.total} points", flush=True)
        timed = [(t, p) for p in space.points if (t := p.time_us(None)) is not None]
        timed.sort(key=lambda row: row[0])
        points = [point for _, point in timed[: a.rivals]]
        own, *others = dict.fromkeys([space.format.name, *a.formats.split(",")])
        found += [Candidate(space.implementation, p.config, own, "own") for p in points]
        found += [
            Candidate(space.implementation, p.config, name, "own")
            for p in points[:1]
            for name in others
        ]
    return list({_text(one): one for one in found}.values())


def _sizes(workload: Workload) -> tuple[object, ...]:
    """What a kernel is launched for; layouts are the implementation's business."""
    w = workload
    return w.op, w.heads, w.tokens, w.reduction, w.columns


def _best(one: RecordedWorkload, count: int) -> list[Candidate]:
    """The best by the mean over the regimes, of those that were right."""
    rows = [
        (geometric_mean([one.baseline_us[r] / t for r, t in c.times_us.items()]), c)
        for c in one.candidates
        if c.reason is None and c.times_us
    ]
    rows.sort(key=lambda row: -row[0])
    return [Candidate(c.implementation, c.config, c.format, c.source) for _, c in rows[:count]]


def _row(
    name: str,
    finals: Sequence[Candidate],
    samples: Sequence[Sequence[PairedSamples]],
    chosen: Candidate | None,
) -> Row:
    by_regime = [
        [one.speedup.estimate for one in confirm(taken, Rule()).results] for taken in samples
    ]
    gains = [geometric_mean(one) for one in by_regime]
    fit = [i for i, one in enumerate(by_regime) if min(one) >= 1.0]  # slower nowhere
    best = max(fit, key=gains.__getitem__, default=None)
    mine = next((g for g, c in zip(gains, finals, strict=True) if c == chosen), 1.0)
    text = None if chosen is None else _text(chosen)
    if best is None:  # the baseline is a choice too
        return Row(name, text, mine, "baseline", 1.0, len(finals))
    return Row(name, text, mine, _text(finals[best]), gains[best], len(finals))


def _line(row: Row) -> str:
    return (
        f"{row.workload}: {row.chosen} {row.speedup:.3f}x, best {row.best_speedup:.3f}x "
        f"({row.best}) of {row.held_out}: {row.behind:.3f}"
    )


def _text(candidate: Candidate) -> str:
    config = " ".join(f"{k}={v}" for k, v in sorted(candidate.config.items()) if v != "")
    return f"{candidate.implementation} {candidate.format} {config}".strip()


if __name__ == "__main__":
    sys.exit(main())
