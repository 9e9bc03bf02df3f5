"""What a time by slope says beside a replay over n, an eager launch and ncu's duration.

    python benchmarks/timing_methods.py --output FILE.json

Four tables: slope against plain replay-over-n for a 2 us and a 40 us kernel, warm and rotated;
cuBLAS bmm (H = K = 128) warm and cold; eager less graph; ncu's duration less the slope.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median

from kernel_compass.measurement.probes import STREAM_CONFIGS, StreamProbes
from kernel_compass.measurement.subject import Subject
from kernel_compass.measurement.timing import TimingOptions, measure, prepare
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.calibration import Access
from kernel_compass.records.measurement import LaunchMode
from kernel_compass.records.profile import Regime

MIB = 1 << 20
COLUMNS = (256, 512, 1024, 1536, 2048, 3072, 4096)
TOKENS = (1, 16, 64, 256)
PLAIN_LAUNCHES = 16
NCU_COLUMNS = (512, 4096)


def bmm(device: TorchDevice, columns: int, tokens: int) -> Subject:
    """cuBLAS bf16 bmm of 128 heads, K = 128."""
    torch = device.torch
    a = torch.randn(128, tokens, 128, device="cuda").to(torch.bfloat16)
    w = torch.randn(128, 128, columns, device="cuda").to(torch.bfloat16)
    return Subject(lambda w, a: torch.bmm(a, w), streamed=(w,), resident=(a,))


def plain_us(subject: Subject, device: TorchDevice, regime: Regime) -> float:
    """The usual way: one replay of n launches between two events, over n; median of 20.

    n is 16, or the number of rotated sets that total 200 MB; nothing keeps the GPU busy while the
    replay is launched.
    """
    size = sum(map(device.bytes_of, subject.streamed))
    n = PLAIN_LAUNCHES if regime is Regime.WARM else max(PLAIN_LAUNCHES, 200_000_000 // size)
    plan = prepare(subject, device, regime).plan(device, n, LaunchMode.GRAPH)
    times = [device.elapsed_us(plan.short, primed=False) for _ in range(25)]
    return median(times[5:]) / n


def slope_and_plain(device: TorchDevice) -> list[dict]:
    """The 2 us and the 40 us kernel: reads of 2 MiB and of 160 MiB."""
    probes = StreamProbes(device)
    rows = []
    for name, size in (("2 us", 2 * MIB), ("40 us", 160 * MIB)):
        for regime in (Regime.WARM, Regime.COLD):
            sets = 1 if regime is Regime.WARM else (1 << 30) // size
            sets = 1 << (sets.bit_length() - 1)
            config = STREAM_CONFIGS[0 if size < 4 * MIB else 2]
            subject = probes.stream(Access.READ, size, config, sets)
            found = measure(subject, device, regime)
            plain = plain_us(subject, device, regime)
            rows.append(
                {
                    "kernel": name,
                    "regime": regime.value,
                    "slope_us": found.median_us,
                    "spread_pct": found.spread_pct,
                    "launches": found.launches_per_replay,
                    "replay_overhead_us": found.replay_overhead_us,
                    "primed_replay_over_n_us": found.plain_us,
                    "plain_replay_over_n_us": plain,
                    "plain_over_slope": plain / found.median_us,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def bmm_table(device: TorchDevice, tokens: tuple[int, ...]) -> list[dict]:
    """Warm, cold and eager times of cuBLAS bmm."""
    rows = []
    for n in COLUMNS:
        for m in tokens:
            subject = bmm(device, n, m)
            warm = measure(subject, device, Regime.WARM)
            cold = measure(subject, device, Regime.COLD)
            row = {"n": n, "m": m, "warm_us": warm.median_us, "cold_us": cold.median_us}
            row |= {"warm_spread_pct": warm.spread_pct, "cold_spread_pct": cold.spread_pct}
            row["cold_over_warm"] = cold.median_us / warm.median_us
            row["warnings"] = [*warm.warnings, *cold.warnings]
            eager = measure(subject, device, launch_mode=LaunchMode.EAGER)
            row |= {"eager_us": eager.median_us, "eager_spread_pct": eager.spread_pct}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def ncu_rows(device: TorchDevice) -> list[dict]:
    """ncu's duration of warm launches of the same bmm."""
    rows = []
    for n in NCU_COLUMNS:
        command = ["ncu", "--csv", "--cache-control", "none", "--clock-control", "none"]
        command += ["--metrics", "gpu__time_duration.sum", "--print-units", "base"]
        command += ["--launch-skip", "20", "--kernel-name", "regex:gemm|gemv|nvjet|bmm|cutlass"]
        command += [sys.executable, __file__, "--bmm", str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        table = [line for line in done.stdout.splitlines() if line.startswith('"')]
        values = [float(r["Metric Value"].replace(",", "")) for r in csv.DictReader(table)]
        if not values:
            print(done.stdout[-500:], done.stderr[-500:])
            continue
        slope = measure(bmm(device, n, 1), device)
        times = [v / 1e3 for v in values]
        quartiles = sorted(times)[len(times) // 4], sorted(times)[3 * len(times) // 4]
        rows.append(
            {
                "n": n,
                "launches": len(times),
                "ncu_us": median(times),
                "ncu_quartiles_us": quartiles,
                "slope_us": slope.median_us,
                "offset_us": median(times) - slope.median_us,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def loop(columns: int) -> None:
    """What ncu watches: 60 launches of one bmm on the same operands."""
    subject = bmm(TorchDevice(), columns, 1)
    for _ in range(60):
        subject.first_call()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--bmm", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)))
    args = parser.parse_args()
    if args.bmm:
        loop(args.bmm)
        return
    device = TorchDevice()
    result = {
        "slope_and_plain": slope_and_plain(device),
        "bmm": bmm_table(device, tuple(map(int, args.tokens.split(",")))),
        "ncu": ncu_rows(device),
        "options": asdict(TimingOptions()),
        "environment": asdict(device.environment()),
    }
    if args.output:
        args.output.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
