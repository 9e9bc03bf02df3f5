"""Trim recordings of the truth suite to what the project reads, for tests/golden.

python benchmarks/truth/trim.py RECORDED_DIR [RECORDED_DIR ...] --output tests/golden/h200_truth

Several recordings (each an output folder of record.py) are merged: launches of a later one follow
those of an earlier one, with their IDs raised so that none repeat.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
from pathlib import Path

from kernel_compass.profiling.metrics import BY_LABEL, BY_NAME, DEVICE_NAMES, DURATION_NAMES

IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC",
)  # fmt: skip
KNOWN = {*IDENTITY, *BY_NAME, *DEVICE_NAMES.values(), *DURATION_NAMES}
RULES = {
    "SOLBottleneck", "HighPipeUtilization", "CPIStall", "UncoalescedGlobalAccess",
    "SharedMemoryConflicts", "UncoalescedSharedAccess", "ThreadDivergence",
}  # fmt: skip
PAGES = ("truth_none_raw", "truth_none_details", "truth_all_raw", "truth_all_details")


def table(path: Path) -> list[list[str]]:
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(line for line in file if line.startswith('"')))


def wide(rows: list[list[str]]) -> list[list[str]]:
    keep = [i for i, name in enumerate(rows[0]) if name in KNOWN]
    return [[row[i] for i in keep] for row in rows]


def long(rows: list[list[str]]) -> list[list[str]]:
    name, rule = rows[0].index("Metric Name"), rows[0].index("Rule Name")
    kept = [rows[0]]
    for row in rows[1:]:
        is_rule = len(row) > rule and row[rule] != ""
        label = row[name]
        known = label in BY_NAME or label in BY_LABEL or label == "Duration"
        if (is_rule and row[rule] in RULES) or (not is_rule and known):
            kept.append(row)
    return kept


def merged(folders: list[Path], page: str) -> list[list[str]]:
    result: list[list[str]] = []
    raised = 0
    for folder in folders:
        path = folder / f"{page}.csv.xz"
        if not path.exists():
            continue
        rows = (wide if page.endswith("raw") else long)(table(path))
        head = 2 if page.endswith("raw") else 1
        if result and rows[0] != result[0]:
            rows = aligned(rows, result[0])
        result = result or rows[:head]
        for row in rows[head:]:
            result.append([str(int(row[0]) + raised), "1000", *row[2:]])
        raised = 1 + max(int(row[0]) for row in result[head:])
    return result


def aligned(rows: list[list[str]], header: list[str]) -> list[list[str]]:
    index = {name: i for i, name in enumerate(rows[0])}
    return [[row[index[n]] if n in index else "" for n in header] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recorded", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        rows = merged(args.recorded, page)
        with lzma.open(
            args.output / f"{page}.csv.xz", "wt", encoding="utf-8", newline="", preset=9
        ) as file:
            csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
        print(page, len(rows), "rows")
    first = json.loads((args.recorded[0] / "environment.json").read_text())
    keys = ("date", "gpu", "gpu_fields", "ncu", "nvcc", "torch_triton_cuda", "python")
    environment = {key: first[key] for key in keys}
    (args.output / "environment.json").write_text(json.dumps(environment, indent=1) + "\n")


if __name__ == "__main__":
    main()
