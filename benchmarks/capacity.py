"""Effective L2 capacity: three fresh processes by time, and the onset of DRAM reads by ncu.

    python benchmarks/capacity.py --output FILE.json

ncu profiles each CUDA graph of 40 launches as one workload, in one pass: between the launches of a
graph it cannot disturb L2, as it does between single launches.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_compass.analysis.dram_onset import dram_onset
from kernel_compass.execution.tasks import run_task
from kernel_compass.measurement.calibration_run import warm_capacity
from kernel_compass.measurement.probes import STREAM_CONFIGS, StreamProbes
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.profiling.graph_traffic import graph_traffic
from kernel_compass.records.calibration import Access

MIB = 1 << 20
SIZES_MIB = (8, 16, 24, 28, 32, 36, 38, *range(40, 51), 52, 54, 56, 60, 64)
LAUNCHES = 40


def task(arguments: Mapping[str, Any], tell: Any) -> dict[str, Any]:
    """c_eff in this process."""
    capacity, curve = warm_capacity()
    points = [[p.bytes / MIB, p.duration_us] for p in curve.points]
    return {"c_eff": asdict(capacity), "points_mib_us": points}


def watched() -> None:
    """What ncu watches: for each size a graph of re-reads, replayed twice."""
    device = TorchDevice()
    probes = StreamProbes(device)
    for size in SIZES_MIB:
        subject = probes.stream(Access.READ, size * MIB, STREAM_CONFIGS[2], 1)
        device.run(subject.first_call)
        replay = device.capture([subject.first_call] * LAUNCHES)
        for _ in range(2):
            device.run(replay)


def dram_reads() -> tuple[list[list[float]], str]:
    """MiB of the working set and of the DRAM reads of a launch, for each size."""
    traffic = graph_traffic([sys.executable, __file__, "--watched"])
    second = traffic.dram_bytes_read[1::2]
    told = traffic.failure.found if traffic.failure else ""
    found = [[size, read / LAUNCHES / MIB] for size, read in zip(SIZES_MIB, second, strict=False)]
    return found, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.watched:
        watched()
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    runs = [run_task("capacity:task", {}, timeout_s=120) for _ in range(3)]
    values = [run["c_eff"]["value"] / MIB for run in runs]
    print("c_eff MiB:", [f"{v:.2f}" for v in values], f"spread {max(values) - min(values):.2f}")
    reads, told = dram_reads()
    for size, read in reads:
        print(f"{size:6.1f} MiB: {read:7.2f} MiB read from DRAM a launch ({read / size:.0%})")
    onset = dram_onset([(s * MIB, r * MIB) for s, r in reads]) if reads else None
    print("onset of DRAM reads:", onset, told)
    result = {
        "c_eff_mib": values,
        "runs": runs,
        "dram_reads_mib": reads,
        "dram_onset": asdict(onset) if onset else None,
        "environment": asdict(TorchDevice().environment()),
    }
    if args.output:
        args.output.write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
