"""Time cuBLAS in bf16 across the boundary of L2: `kernel-compass sweep` of the baseline alone.

python -m kernels.baselines --output data/l2_sweep.json [options of sweep]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kernel_compass.cli.main import main as command
from kernel_compass.records.kernel_table import BASELINE

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the words are those of `kernel-compass sweep`, and may name more formats."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = {word.partition("=")[0] for word in words}
    if "--precisions" not in named:
        words += ["--precisions", "bf16"]
        if "--implementations" not in named:
            words += ["--implementations", BASELINE]
    return command(["sweep", *words])


if __name__ == "__main__":
    sys.exit(main())
