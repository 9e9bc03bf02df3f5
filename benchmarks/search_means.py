"""Geometric means over cuBLAS of what decode_search.py printed for H = K = 128; needs no GPU.

    python benchmarks/search_means.py [PRINTED.txt ...]

The first configuration of a format under a shape is its best by warm times cold.
"""

from __future__ import annotations

import re
import sys
from math import exp, log
from pathlib import Path

KEPT = sorted((Path(__file__).parent / "results/h200").glob("decode_search_*.txt"))
SHAPE = re.compile(r"bmm (128x\d+x128x\d+)\s+cublas\s+([\d.]+)\s+([\d.]+)")
BEST = re.compile(r"   (w\S+)\s+([\d.]+)\s+([\d.]+)  ")


def ratios(text: str) -> dict[str, list[float]]:
    """Warm and cold ratios of each format's best, a pair a shape; a shape counts once."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    shape, cublas = "", (0.0, 0.0)
    for line in text.splitlines():
        if head := SHAPE.match(line):
            shape, cublas = head[1], (float(head[2]), float(head[3]))
        elif not line.startswith(" "):
            shape = ""
        elif shape and (best := BEST.match(line)):
            pair = (cublas[0] / float(best[2]), cublas[1] / float(best[3]))
            found.setdefault(best[1], {}).setdefault(shape, pair)
    return {name: [r for pair in cells.values() for r in pair] for name, cells in found.items()}


def main() -> None:
    for path in map(Path, sys.argv[1:] or KEPT):
        for name, values in ratios(path.read_text()).items():
            mean = exp(sum(map(log, values)) / len(values))
            print(f"{path.name}  {name:10s} {len(values)} cells  x {mean:.2f}")


if __name__ == "__main__":
    main()
