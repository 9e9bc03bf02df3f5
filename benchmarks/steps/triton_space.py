"""Every configuration of a kernel's space measured, beside the one that the loop chose.

    python benchmarks/steps/triton_space.py KERNEL CONFIGS ROWS FIRST STEP [-- ARGS]

The space is what the loop chooses from: `neighbours` of the launch as it was captured, and the
launch itself. Some processes compile all of it into Triton's own cache; then one measures each
configuration alone, its launches in a CUDA graph, results compared with the untouched launch's.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LAUNCHES, SAMPLES, ROUNDS = 10, 3, 12
WITHIN = 1.05
"""Of the best there is."""
WRONG_PCT = 1.0


def space_of(launch: Any) -> list[dict[str, Any]]:
    """The launch as it is, and all that the loop may put in its place."""
    from kernel_compass.optimizer.step_proposers.triton_configs import neighbours

    return [dict(launch.config), *map(dict, neighbours(launch))]


def measured(
    kernel: str,
    space: Sequence[Mapping[str, Any]],
    rows: Path,
    words: Sequence[str],
    until: float,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Times of a space, a line of JSON each; goes on where an earlier call ended.

    Args:
        kernel: its function's name.
        space: configurations.
        rows: where lines are kept.
        words: arguments of the program.
        until: `time.monotonic()` after which nothing more is begun.
        say: told in a line.
    """
    configs = rows.with_suffix(".space.json")
    configs.write_text(json.dumps(list(space)))
    whole = read(rows)
    rows.write_text("".join(f"{json.dumps(one)}\n" for one in whole))  # no line that was cut off
    known = len(whole)
    if known < len(space):
        command = [sys.executable, str(HERE / "triton_space.py"), kernel, str(configs)]
        if not known and _has_gpu():
            say(f"{kernel}: compiling {len(space)} configurations")
            _compile(command, words, until)
        left = max(until - time.monotonic(), 1.0)
        command += [str(rows), str(known), "1", "--", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            _follow(process, kernel, len(space), left, say)
    return read(rows)


def _compile(command: Sequence[str], words: Sequence[str], until: float) -> None:
    """All configurations once, many at a time; nothing is timed meanwhile."""
    count = max((os.cpu_count() or 2) - 2, 1)
    processes = [
        subprocess.Popen([*command, "-", str(i), str(count), "--", *words]) for i in range(count)
    ]
    for one in processes:
        try:
            one.wait(max(until - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def _follow(process: Any, kernel: str, total: int, left: float, say: Callable[[str], None]) -> None:
    began, told = time.monotonic(), 0.0
    for line in process.stdout:
        now = time.monotonic()
        if now - told > 5:
            say(f"{kernel}: {line.strip()} of {total}")
            told = now
        if now - began > left:
            process.terminate()
            return


def read(rows: Path) -> list[dict[str, Any]]:
    """What was measured so far; a line that was cut off was not."""
    found = []
    for line in rows.read_text().splitlines() if rows.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def summed(
    rows: Sequence[Mapping[str, Any]], total: int, chosen: Mapping[str, Any] | None
) -> dict[str, Any]:
    """How far the loop's choice is from the best of what was measured."""
    timed = [one for one in rows if one["time_us"] is not None]
    first = rows[0] if rows else None
    best = min(timed, key=lambda one: one["time_us"], default=None)
    wanted = first["config"] if first and chosen is None else chosen
    mine = next((one for one in timed if _same(one["config"], wanted)), None)
    behind = mine["time_us"] / best["time_us"] if mine and best else None
    return {
        "measured": len(rows),
        "space": total,
        "complete": len(rows) >= total,
        "untouched_us": first and first["time_us"],
        "chosen": wanted if chosen is not None else None,
        "chosen_us": mine and mine["time_us"],
        "best": best and best["config"],
        "best_us": best and best["time_us"],
        "behind": behind,
        "within": behind is not None and behind <= WITHIN,
    }


def _same(one: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and dict(one) == dict(other)


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _timed(
    kernel: str, configs: Sequence[Mapping[str, Any]], alone: bool
) -> Iterator[dict[str, Any]]:
    """Each configuration put in at the launch; `alone`: run once and not timed."""
    import torch

    from kernel_compass.api.applying import applied_actions
    from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget

    call = getattr(importlib.import_module("poor_triton"), kernel.removesuffix("_kernel"))
    reference = call().float()
    for config in configs:
        target = StepTarget(f"kernel {kernel}", kernel=kernel)
        action = StepAction(StepActionKind.TRITON_CONFIG, target, config=config)
        row: dict[str, Any] = {"config": dict(config), "time_us": None, "why": ""}
        try:
            with applied_actions([action]) as on:
                found = call().float()
                why = on.applications[0].objection
                error = 100 * float((found - reference).norm() / reference.norm())
                if why or error > WRONG_PCT:
                    row["why"] = why or f"its results are {error:.3g} % off"
                elif not alone:
                    row["time_us"] = _time_us(torch, call)
        except Exception as error:
            row["why"] = f"{type(error).__name__}: {error}"[:200]
        yield row


def _time_us(torch: Any, call: Callable[[], object]) -> float:
    if not torch.cuda.is_available():
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            call()
    times = []
    for _ in range(SAMPLES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / LAUNCHES)
    return sorted(times)[len(times) // 2]


def main() -> None:
    kernel, file, rows, first, step = sys.argv[1:6]
    configs = json.loads(Path(file).read_text())[int(first) :: int(step)]
    sys.argv[1:] = sys.argv[7:]
    if rows == "-":
        for _ in _timed(kernel, configs, alone=True):
            pass
        return
    with Path(rows).open("a") as out:
        for number, row in enumerate(_timed(kernel, configs, alone=False), int(first) + 1):
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(number, flush=True)


if __name__ == "__main__":
    main()
