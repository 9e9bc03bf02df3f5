"""Kineto traces of examples/decoder_block.py: decode and prefill, eager and as a CUDA graph.

Five steps after warm-up under torch.profiler with shapes; beside each trace stands the time of a
step without the profiler, by CUDA events, so that what the profiler costs can be seen. Takes less
than a minute on an H200.

python benchmarks/decoder_block_trace.py --output FOLDER [--only decode_graph] [--with-stack]
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from decoder_block import PHASES, captured, make_block, make_input

STEPS, WARM_UP, TIMED = 5, 2, 50
CASES = tuple(f"{phase}_{mode}" for phase in PHASES for mode in ("eager", "graph"))


def step_of(case: str, device: str) -> Callable[[], Any]:
    phase, mode = case.split("_")
    block = make_block(PHASES[phase], device)
    x = make_input(block)
    if mode == "eager":
        return lambda: block(x)
    graph = captured(block, x)
    # The replay uses the block's and the input's memory: keep both alive with it.
    return lambda keep=(block, x): graph.replay()


def record(step: Callable[[], Any], path: Path, device: str, with_stack: bool) -> None:
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    with profile(
        activities=activities, schedule=plan, record_shapes=True, with_stack=with_stack
    ) as profiler:
        for _ in range(WARM_UP + STEPS):
            step()
            synchronize(device)  # a step as a serving engine sees it: the next token waits for it
            profiler.step()
    profiler.export_chrome_trace(str(path))


def step_us(step: Callable[[], Any], device: str) -> dict[str, float] | None:
    """Time of one step without the profiler: alone, and back to back."""
    if device != "cuda":
        return None
    alone = []
    for _ in range(TIMED):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        alone.append((time.perf_counter() - begin) * 1e6)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(TIMED):
        step()
    stop.record()
    torch.cuda.synchronize()
    return {
        "step_alone_wall_us": round(statistics.median(alone), 2),
        "step_back_to_back_us": round(start.elapsed_time(stop) * 1e3 / TIMED, 2),
    }


def environment(device: str) -> dict[str, str | None]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", choices=CASES, action="append", help="default: all")
    parser.add_argument("--with-stack", action="store_true", help="Python frames: large traces")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args.output.mkdir(parents=True, exist_ok=True)
    cases = args.only or [c for c in CASES if device == "cuda" or c.endswith("eager")]
    result: dict[str, Any] = {"environment": environment(device), "steps": STEPS, "cases": {}}
    torch.manual_seed(0)
    with torch.inference_mode():
        for case in cases:
            begin = time.perf_counter()
            step = step_of(case, device)
            for _ in range(3):
                step()
            timed = step_us(step, device)
            path = args.output / f"decoder_block_{case}.json.gz"
            record(step, path, device, args.with_stack)
            result["cases"][case] = timed
            took = time.perf_counter() - begin
            print(f"{case}: {timed}, {path.stat().st_size / 1e3:.0f} kB, {took:.1f} s", flush=True)
            del step
            if device == "cuda":
                torch.cuda.empty_cache()
    text = json.dumps(result, indent=1) + "\n"
    (args.output / "decoder_block.environment.json").write_text(text)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
