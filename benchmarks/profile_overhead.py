"""`kernel-compass profile` per regime next to a bare ncu run with the same metrics.

Both profile examples/two_bmms.py with 200 MB of other work between the products. The bare run is
one ncu command a run of ours, with the same metric list, cache control and filter, and its report
exported to CSV, as a user would do by hand; alternating, the median of `--repeats` pairs.

python benchmarks/profile_overhead.py [--repeats 1] [--output FILE] [--save DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bmm_limiter import environment

from kernel_compass.profiling.metric_lists import metric_list, one_pass_list

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = [str(ROOT / "examples" / "two_bmms.py"), "--between", "200"]
KERNELS = "nvjet|gemm"
RUNS = {
    "warm": [("none", "full")],
    "cold": [("all", "full")],
    "in_situ": [("none", "full"), ("none", "one_pass")],
}


def timed(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, env=os.environ | {"LC_ALL": "C"}, capture_output=True)
    return time.monotonic() - began


def bare(regime: str, folder: Path) -> float:
    lists = {"full": metric_list("9.0"), "one_pass": one_pass_list("9.0")}
    total = 0.0
    for i, (cache, which) in enumerate(RUNS[regime]):
        report = folder / f"bare_{regime}_{i}.ncu-rep"
        total += timed([
            "ncu", "--target-processes", "all", "--cache-control", cache,
            "--clock-control", "none", "--kernel-name", f"regex:{KERNELS}",
            "--metrics", ",".join(lists[which]), "-f", "-o", str(report), sys.executable, *SCRIPT,
        ])  # fmt: skip
        total += timed(["ncu", "--import", str(report), "--csv", "--page", "raw",
                        "--print-units", "base", "--log-file", str(report) + ".csv"])  # fmt: skip
    return total


def ours(regime: str, folder: Path) -> tuple[float, dict[str, object]]:
    output = folder / f"{regime}.json"
    wall = timed([
        sys.executable, "-m", "kernel_compass.cli.main", "profile", "--regime", regime,
        "--kernels", KERNELS, "--output", str(output), *SCRIPT,
    ])  # fmt: skip
    return wall, json.loads(output.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare("warm", folder)  # the first run pays for cold file caches
        for regime in RUNS:
            pairs = [(ours(regime, folder)[0], bare(regime, folder)) for _ in range(args.repeats)]
            mine = statistics.median(a for a, _ in pairs)
            theirs = statistics.median(b for _, b in pairs)
            result[regime] = {
                "kernel_compass_s": round(mine, 2),
                "bare_ncu_s": round(theirs, 2),
                "ratio": round(statistics.median(a / b for a, b in pairs), 3),
            }
            print(regime, result[regime], flush=True)
    if args.output:
        document = {"environment": environment(), "repeats": args.repeats, "runs": result}
        args.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
