"""Choose the shipped configurations of the decode kernels from timed searches.

    python benchmarks/build_decode_table.py SEARCH.json [SEARCH.json ...] [--bench BENCH.json]

Later files replace the cells that earlier ones hold; what is no longer legal is left out. The best
of a cell has the least product of its warm and cold time. For the batch-invariant variant, the
cells that differ in tokens alone share one order along K: that with the least product over them.
With a run of `kernels_bench.py`, cells where cuBLAS was faster, by `BEHIND` or more, are marked.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from kernel_compass.codec.kernel_table import decode
from kernel_compass.kernels.decode import configuration, legal
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload

TABLE = Path(__file__).parents[1] / "src/kernel_compass/kernels/decode_table.json"
BEHIND = 0.98
"""cuBLAS's time over the own kernel's, under which cuBLAS is to be taken."""
CODES = {"w8a16_fp8": "fp8", "w4a16_gk": "int4", "bf16": "bf16"}


def score(row: dict[str, Any]) -> float:
    return row["warm_us"] * row["cold_us"]


def order(row: dict[str, Any]) -> tuple[int, int, int]:
    config = row["config"]
    return config["warps_k"], config["chains"], config["rows"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("searches", type=Path, nargs="+")
    parser.add_argument("--bench", type=Path)
    args = parser.parse_args()
    behind = cells_behind(args.bench) if args.bench else set()
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for path in args.searches:
        fresh = defaultdict(list)
        for row in json.loads(path.read_text()):
            op, heads, tokens, reduction, columns = row["workload"]
            workload = Workload(Op(op), heads, tokens, reduction, columns)
            if not legal(configuration(row["config"]), workload, NumberFormat.parse(row["format"])):
                continue
            fresh[CODES[row["format"]], heads, reduction, columns, tokens].append(row)
        cells |= fresh
    families = defaultdict(dict)
    for (code, heads, reduction, columns, tokens), rows in cells.items():
        families[code, heads, reduction, columns][tokens] = rows
    table = []
    for (code, heads, reduction, columns), by_tokens in sorted(families.items()):
        shared = shared_order(by_tokens)
        for tokens, rows in sorted(by_tokens.items()):
            fit = [r for r in rows if r["config"]["kernel"] == "mma" and order(r) == shared]
            table.append(
                {
                    "code": code,
                    "shape": [heads, tokens, reduction, columns],
                    "best": min(rows, key=score)["config"],
                    "invariant": min(fit, key=score)["config"] if fit else None,
                }
            )
            if (code, heads, tokens, reduction, columns) in behind:
                table[-1]["behind_cublas"] = True
    lines = ",\n".join("  " + json.dumps(row) for row in table)
    TABLE.write_text('{"gpu": "NVIDIA H200", "rows": [\n' + lines + "\n]}\n")
    print(f"{len(table)} rows")


def cells_behind(bench: Path) -> set[tuple[Any, ...]]:
    """Code and shape of the cells where cuBLAS is faster, warm or cold."""
    rows = decode(bench.read_bytes()).rows
    return {
        (CODES[row.format.name], w.heads, w.tokens, w.reduction, w.columns)
        for row in rows
        if row.implementation == "own_decode" and row.format.name in CODES
        for w in (row.workload,)
        if row.speedup is not None and row.speedup < BEHIND
    }


def shared_order(by_tokens: dict[int, list[dict[str, Any]]]) -> tuple[int, int, int] | None:
    """The order along K that costs least over the few-token cells, all of which have it."""
    totals: dict[tuple[int, int, int], float] = {}
    few = [rows for tokens, rows in by_tokens.items() if tokens <= 16]
    for rows in few:
        best: dict[tuple[int, int, int], float] = {}
        for row in rows:
            if row["config"]["kernel"] == "mma":
                best[order(row)] = min(best.get(order(row), 1e30), score(row))
        floor = min(best.values(), default=1.0)
        for key in list(totals) if totals else list(best):
            if key in best:
                totals[key] = totals.get(key, 1.0) * best[key] / floor
            else:
                totals.pop(key, None)
    return min(totals, key=lambda key: totals[key]) if totals else None


if __name__ == "__main__":
    main()
