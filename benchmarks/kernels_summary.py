"""Geometric means and ratios of a kept run of kernels_bench.py; needs no GPU.

python benchmarks/kernels_summary.py [FILE.json]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernels_bench import summary

from kernel_compass.codec.kernel_table import decode

KEPT = Path(__file__).parent / "results/h200/kernels_bench.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=KEPT)
    table = decode(parser.parse_args().file.read_bytes())
    print("\n".join(summary(list(table.rows))))


if __name__ == "__main__":
    main()
