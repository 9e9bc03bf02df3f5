"""The sequential rule on a real GPU: a kernel against itself, and against itself slowed by 3 %.

    python benchmarks/aa_comparisons.py --output FILE.json [--noise FILE.json]

In each of four fresh processes: 50 comparisons of cuBLAS bmm (H = K = 128, N = 512, M = 1; half of
them warm, half cold) with itself, and 25 of a streaming read with one that reads so much more that
it takes 3 % longer. What the slowed one really costs is measured over many pairs, beside the
comparisons. --noise keeps pairs of the first, for simulations.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.execution.tasks import run_task
from kernel_compass.measurement.paired import PairedTimer, pair
from kernel_compass.measurement.probes import STREAM_CONFIGS, StreamProbes
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.calibration import Access
from kernel_compass.records.comparison import Decision, Rule
from kernel_compass.records.profile import Regime

MIB = 1 << 20
BASE_BYTES = 64 * MIB
SLOWED = 1.03
GPU_LIMIT_S = 2.0
KEPT = 8
"""Comparisons of each process whose pairs are kept as recorded noise."""


def bmm(device: TorchDevice) -> Subject:
    """cuBLAS bf16 bmm of 128 heads."""
    torch = device.torch
    a = torch.randn(128, 1, 128, device="cuda").to(torch.bfloat16)
    w = torch.randn(128, 128, 512, device="cuda").to(torch.bfloat16)
    return Subject(lambda w, a: torch.bmm(a, w), streamed=(w,), resident=(a,))


def slowed_pair(device: TorchDevice) -> tuple[Subject, Subject, int]:
    """A read of 64 MiB, and one of as many bytes as take 3 % longer by the local slope."""
    probes = StreamProbes(device)

    def read(size: int) -> Subject:
        return probes.stream(Access.READ, size, STREAM_CONFIGS[2], 1)

    low = measure(read(BASE_BYTES), device).median_us
    high = measure(read(BASE_BYTES + 8 * MIB), device).median_us
    extra = round((SLOWED - 1) * low / (high - low) * 8 * MIB / 65536) * 65536
    return read(BASE_BYTES), read(BASE_BYTES + extra), extra


def compare(timer: PairedTimer, kept: list[dict] | None, process: int) -> dict[str, Any]:
    """One comparison under the default rule, ended at two seconds."""
    comparison = SequentialComparison(Rule())
    begin = time.monotonic()
    baseline, candidate = [], []
    while comparison.decision is Decision.CONTINUE:
        pairs = timer.take(comparison.pairs_wanted, process)
        comparison.add(pairs)
        baseline += pairs.baseline_us
        candidate += pairs.candidate_us
        spent = time.monotonic() - begin
        if comparison.decision is Decision.CONTINUE and spent > GPU_LIMIT_S / 2:
            comparison.stop()
    found = comparison.result()
    if kept is not None:
        times = {"baseline_us": baseline, "candidate_us": candidate}
        kept.append({k: [round(t, 4) for t in v] for k, v in times.items()} | {"process": process})
    return {
        "decision": found.decision.value,
        "speedup": found.speedup.estimate,
        "low": found.speedup.low,
        "high": found.speedup.high,
        "pairs": found.pairs,
        "pair_noise_pct": found.pair_noise_pct,
        "seconds": time.monotonic() - begin,
    }


def task(arguments: Mapping[str, Any], tell: Any) -> dict[str, Any]:
    """One process's share."""
    device = TorchDevice()
    process, kept, same = arguments["process"], [], []
    subject = bmm(device)
    for regime in (Regime.WARM, Regime.COLD):
        timer = pair(subject, subject, device, regime, options=TimingOptions(launches=64))
        for index in range(arguments["same"] // 2):
            keep = kept if index < KEPT // 2 else None
            same.append(compare(timer, keep, process) | {"regime": regime.value})
    base, slow, extra = slowed_pair(device)
    timer = pair(base, slow, device)
    slowed = [compare(timer, None, process) for _ in range(arguments["slowed"])]
    reference = timer.take(arguments["reference"], process)
    ratios = [b / a for a, b in zip(reference.baseline_us, reference.candidate_us, strict=True)]
    return {
        "same": same,
        "slowed": slowed,
        "slowed_truth": median(ratios),
        "extra_bytes": extra,
        "kept": kept,
        "environment": asdict(device.environment()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--noise", type=Path)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--same", type=int, default=50)
    parser.add_argument("--slowed", type=int, default=25)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    share = {"same": args.same, "slowed": args.slowed, "reference": 150}
    runs = []
    for process in range(args.processes):
        runs.append(run_task("aa_comparisons:task", {**share, "process": process}, timeout_s=200))
        print(f"process {process} done", flush=True)
    same = [row for run in runs for row in run["same"]]
    slowed = [row for run in runs for row in run["slowed"]]
    result: dict[str, Any] = {
        "rule": asdict(Rule()),
        "same": summary(same),
        "slowed": summary(slowed) | {"truth": [run["slowed_truth"] for run in runs]},
        "comparisons": {"same": same, "slowed": slowed},
        "environment": runs[0]["environment"],
    }
    print(json.dumps({k: result[k] for k in ("same", "slowed")}, indent=1))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n")
    if args.noise:
        noise = {
            "environment": runs[0]["environment"],
            "kernel": "cuBLAS bf16 bmm 128x1x128x512, warm and cold",
            "pairs": [item for run in runs for item in run["kept"]],
        }
        args.noise.write_text(json.dumps(noise) + "\n")


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Decisions, pairs and seconds of some comparisons."""
    return {
        "comparisons": len(rows),
        "decisions": Counter(row["decision"] for row in rows),
        "pairs_median": median(row["pairs"] for row in rows),
        "pairs_most": max(row["pairs"] for row in rows),
        "seconds_most": max(row["seconds"] for row in rows),
        "pair_noise_pct_median": median(row["pair_noise_pct"] for row in rows),
    }


if __name__ == "__main__":
    main()
