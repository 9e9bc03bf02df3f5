"""Does `optimize` keep its promise on this GPU: in time, holding under replay, near the best?

    python benchmarks/record_loop.py mla:deepseek-v3 --tokens 1,16,64 --output UNION.json.gz
    python benchmarks/optimize_h200.py run --folder OUT
    python benchmarks/optimize_h200.py compare --folder OUT --union UNION.json.gz

`record_loop.py` measures the union of all providers' spaces beforehand; the file is frozen:
`compare` takes from it the best `--rivals` of each workload. `run` runs the command and `replay` in
processes of their own and writes what they said. `compare` holds out the choice and its rivals
together, in the same fresh processes, and says how far the choice is from the best: within 3 % is
the promise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_compass.analysis.hold_out import confirm
from kernel_compass.api.evaluating import __name__ as EVALUATING
from kernel_compass.api.loop_place import placed
from kernel_compass.api.studies import study
from kernel_compass.codec import loop_recording
from kernel_compass.codec.canonical import reshaped
from kernel_compass.optimizer.loop_answers import geometric_mean
from kernel_compass.optimizer.loop_setup import ends_of
from kernel_compass.optimizer.loop_tasks import TaskMaker
from kernel_compass.records.comparison import Rule
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.loop_recording import RecordedWorkload
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.trial import Candidate

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

    @property
    def behind(self) -> float:
        return self.best_speedup / self.speedup


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("run", "compare"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--union", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tokens", default=TOKENS)
    parser.add_argument("--rivals", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=4.8)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    os.environ["KERNEL_COMPASS_HOME"] = str((a.folder / "home").resolve())
    if a.what == "run":
        return _run(a)
    if a.union is None:
        parser.error("compare needs --union")
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
    recording = loop_recording.read(a.union)
    recorded = study("last")
    chosen = {one.workload: one.proposal.candidate for one in recorded.accepted}
    request = recorded.study.request
    request = replace(request, options={**request.options, "device": a.device})
    with placed(request, "comparison") as place:
        workloads = {one.name: one for one in place.problem.workloads}
        finals: list[tuple[str, Candidate]] = []
        for one in recording.workloads:
            name = one.workload.name
            rivals = _best(one, a.rivals)
            mine = [chosen[name]] if name in chosen else []
            finals += [(name, c) for c in [*mine, *(r for r in rivals if r not in mine)]]
        maker = TaskMaker(
            EVALUATING, request.source, place.device, 1, 3.0, LoopOptions(), place.calibration
        )
        given = [(workloads[name], candidate) for name, candidate in finals]
        samples = _held_out(place.executor, maker, given, request.regimes)
    rows = _rows(finals, samples, chosen)
    document = [{**vars(row), "behind": row.behind} for row in rows]
    (a.folder / "compare.json").write_text(json.dumps(document, indent=2) + "\n")
    for row in rows:
        print(
            f"{row.workload}: {row.chosen} {row.speedup:.3f}x, best {row.best_speedup:.3f}x "
            f"({row.best}): {row.behind:.3f}"
        )
    return 0 if all(row.behind <= WITHIN for row in rows) else 1


def _best(one: RecordedWorkload, count: int) -> list[Candidate]:
    """The best by their worst regime and then by the mean, of those that were right."""
    rows = [
        (geometric_mean([one.baseline_us[r] / t for r, t in c.times_us.items()]), c)
        for c in one.candidates
        if c.reason is None and c.times_us
    ]
    rows.sort(key=lambda row: -row[0])
    return [Candidate(c.implementation, c.config, c.format, c.source) for _, c in rows[:count]]


def _held_out(
    executor: Any, maker: TaskMaker, finals: Sequence[Any], regimes: Sequence[Any]
) -> list[list[PairedSamples]]:
    found: list[list[PairedSamples]] = [[] for _ in finals]
    launches = None
    for process in range(LoopOptions().processes):
        (end,) = ends_of(executor, [maker.finals(process, finals, regimes, launches)])
        if end.answer is None:
            sys.exit(f"process {process}: {end.failure}")
        for place, part in zip(found, end.answer["finals"], strict=True):
            place += [reshaped(fields, PairedSamples) for fields in part["samples"]]
        launches = [{s.regime.value: s.launches_per_replay for s in samples} for samples in found]
    return found


def _rows(
    finals: Sequence[tuple[str, Candidate]],
    samples: Sequence[Sequence[PairedSamples]],
    chosen: dict[str, Candidate],
) -> list[Row]:
    by: dict[str, list[tuple[float, Candidate]]] = {}
    for (name, candidate), taken in zip(finals, samples, strict=True):
        verdict = confirm(taken, Rule())
        gain = geometric_mean([one.speedup.estimate for one in verdict.results])
        by.setdefault(name, []).append((gain, candidate))
    rows = []
    for name, gains in by.items():
        best_gain, best = max(gains, key=lambda row: row[0])
        mine = next((g for g, c in gains if c == chosen.get(name)), 1.0)
        best_gain = max(best_gain, 1.0)  # the baseline is a choice too
        picked = chosen.get(name)
        rows.append(Row(name, picked and _text(picked), mine, _text(best), best_gain))
    return rows


def _text(candidate: Candidate) -> str:
    config = " ".join(f"{k}={v}" for k, v in sorted(candidate.config.items()) if v != "")
    return f"{candidate.implementation} {candidate.format} {config}".strip()


if __name__ == "__main__":
    sys.exit(main())
