"""What four classifiers answer on kernels whose limiter is known by construction.

Ours; the rule "memory % > SM %"; fixed thresholds in the words of this project's first design
(memory_bound, compute_bound, occupancy_limited); and ncu's own Speed-of-Light verdict (the rule
SOLBottleneck of the details page). The kernels are the recorded truth suite, caches as the
program left them.

python benchmarks/compare_verdicts.py [--all]   (--all: a line a kernel, not only disagreements)
python benchmarks/compare_verdicts.py --raw RAW.csv --details DETAILS.csv   (any other capture)
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kernel_compass.analysis.joining import report_one
from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import KernelProfile

sys.path.insert(0, str(Path(__file__).resolve().parent / "truth"))

from cases import CASES

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "h200_truth"
MEMORY = {"dram_bound", "l2_bound", "l1_bound"}


class Row(NamedTuple):
    name: str
    truth: frozenset[str]
    ours: str
    memory_over_sm: str
    first_design: str
    ncu: str


def memory_over_sm(kernel: KernelProfile) -> str:
    sm, memory = kernel.sm_pct or 0.0, kernel.mem_pct or 0.0
    return "memory_bound" if memory > sm else "compute_bound"


def first_design(kernel: KernelProfile) -> str:
    """60 % of peak is a bound, under 30 % occupancy_limited, else the larger of the two."""
    sm, memory = kernel.sm_pct or 0.0, kernel.mem_pct or 0.0
    if memory >= 60.0 and memory >= sm:
        return "memory_bound"
    if sm >= 60.0:
        return "compute_bound"
    if (kernel.occupancy or 100.0) < 30.0:
        return "occupancy_limited"
    return memory_over_sm(kernel)


def ncu_verdict(kernel: KernelProfile) -> str:
    text = next((r.text for r in kernel.rules if r.name == "SOLBottleneck"), "")
    if "grid is too small" in text:
        return "grid_too_small"
    if "latency issues" in text:
        return "latency_bound"
    if match := re.search(r"(?:analyzing|identify the) (DRAM|L2|L1)", text):
        return f"{match.group(1).lower()}_bound"
    if "Compute" in text and "Memory is more heavily" not in text:
        return "compute_bound" if "balanced" not in text else "balanced"
    return "memory_bound" if text else "no verdict"


def agrees(answer: str, truth: frozenset[str]) -> bool:
    """Lenient to the coarser words: memory_bound is right for any memory level."""
    if answer == "memory_bound":
        return bool(truth & MEMORY)
    if answer == "occupancy_limited":
        return "latency_bound" in truth
    if answer == "grid_too_small":
        return bool(truth & {"latency_bound", "launch_bound"})
    return answer in truth


def rows() -> list[Row]:
    raw = {
        k.kernel.name: k.kernel
        for k in report_one(read_capture(GOLDEN / "truth_none_raw.csv.xz")).kernels
    }
    details = {k.name: k for k in read_capture(GOLDEN / "truth_none_details.csv.xz").kernels}
    found = []
    for case in CASES:
        kernel = raw.get(case.name)
        if kernel is None or kernel.bottleneck is None:
            continue
        found.append(
            Row(
                case.name,
                case.limiters,
                kernel.bottleneck,
                memory_over_sm(kernel),
                first_design(kernel),
                ncu_verdict(details[case.name]),
            )
        )
    return found


def answers_only(raw: Path, details: Path) -> None:
    by_identity = {k.identity: k for k in read_capture(details).kernels}
    print("| kernel | ours | memory % > SM % | fixed thresholds | ncu |")
    print("|---|---|---|---|---|")
    for row in report_one(read_capture(raw)).kernels:
        kernel = row.kernel
        others = (memory_over_sm(kernel), first_design(kernel))
        verdict = ncu_verdict(by_identity[kernel.identity])
        name = kernel.name.removeprefix("void ")[:44]
        print(f"| {name} | {kernel.bottleneck} | {' | '.join(others)} | {verdict} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--raw", type=Path, help="another capture's raw page: answers only")
    parser.add_argument("--details", type=Path, help="the details page of the same capture")
    args = parser.parse_args()
    if args.raw and args.details:
        answers_only(args.raw, args.details)
        return
    table = rows()
    right: Counter[str] = Counter()
    names = ("ours", "memory_over_sm", "first_design", "ncu")
    print("| kernel | by construction | ours | memory % > SM % | fixed thresholds | ncu |")
    print("|---|---|---|---|---|---|")
    for row in table:
        marks = {n: agrees(getattr(row, n), row.truth) for n in names}
        right.update(n for n, ok in marks.items() if ok)
        if args.all or not all(marks.values()):
            cells = " | ".join(getattr(row, n) + ("" if marks[n] else " ✗") for n in names)
            print(f"| {row.name} | {' or '.join(sorted(row.truth))} | {cells} |")
    print(f"| right, of {len(table)} | | " + " | ".join(str(right[n]) for n in names) + " |")


if __name__ == "__main__":
    main()
