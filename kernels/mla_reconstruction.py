"""Time MLA's reconstruction products, or launch them for ncu: `kernel-compass mla`.

python -m kernels.mla_reconstruction --model deepseek-v3 [--ncu-mode] [options of mla]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kernel_compass.cli.main import main as command

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the words are those of `kernel-compass mla`."""
    return command(["mla", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
