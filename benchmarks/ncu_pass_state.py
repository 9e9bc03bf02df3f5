"""Which cache state ncu's counters see, by metric list and replay mode.

The target launches the 16.8 MB bmm three times with 200 MB of other work after each: in the state
the program leaves, its weights are in DRAM. A list that fits into one pass must report about
16.8 MB of DRAM reads; a list that needs several passes reports what the kernel's own replay left.

python benchmarks/ncu_pass_state.py [--output FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bmm_limiter import environment

ROOT = Path(__file__).resolve().parent.parent
READ, WRITTEN, TIME = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
L2_READ, HIT = "lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sector_hit_rate.pct"
DRAM_PCT = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
PASSES = "profiler__replayer_passes"
RUNS = {
    "dram bytes": ([READ], []),
    "dram bytes, time, dram %": ([TIME, READ, WRITTEN, DRAM_PCT], []),
    "the same and L2 reads": ([TIME, READ, WRITTEN, DRAM_PCT, L2_READ], []),
    "the same and L2 hit rate": ([TIME, READ, WRITTEN, DRAM_PCT, L2_READ, HIT], []),
}


def measure(metrics: list[str], extra: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        command = [
            "ncu", "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log),
            "--target-processes", "all", "--clock-control", "none", "--cache-control", "none",
            "--kernel-name", "regex:nvjet|gemm", "--metrics", ",".join(metrics), *extra,
            sys.executable, str(ROOT / "examples" / "two_bmms.py"), "--between", "200",
            "--small-only",
        ]  # fmt: skip
        began = time.monotonic()
        subprocess.run(command, check=True, env=os.environ | {"LC_ALL": "C"}, capture_output=True)
        wall = time.monotonic() - began
        rows = list(csv.reader(x for x in log.read_text().splitlines() if x.startswith('"')))
    column = {name: i for i, name in enumerate(rows[0])}
    median = {
        name: statistics.median(float(r[column[name]].replace(",", "")) for r in rows[2:])
        for name in (READ, PASSES)
    }
    return {"passes": median[PASSES], "dram_mb_read": median[READ] / 1e6, "wall_s": round(wall, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    result = {name: measure(*run) for name, run in RUNS.items()}
    for name, row in result.items():
        print(f"{name:32} {row}")
    if args.output:
        document = {"environment": environment(), "runs": result}
        args.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
