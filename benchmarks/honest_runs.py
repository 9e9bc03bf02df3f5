"""How often the judge refuses honest kernels: those of the tests, on secret data, again and again.

    python benchmarks/honest_runs.py --minutes 4

No GPU is needed. Each run draws its data anew from the system's randomness, so no two calls see the
same; at most one rejection in 300 runs is the promise. The exit code is 1 where there are more.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests" / "validation"
MOST = 1 / 300
"""Rejections a run."""
WORKLOADS = 3


def main() -> int:
    """Run, tell every rejection as it comes, and the count last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0)
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(TESTS))
    import torch
    from honest_kernels import KERNELS
    from trying import tried

    torch.set_num_threads(1)
    deadline, runs, rejected = time.monotonic() + 60 * a.minutes, 0, 0
    while time.monotonic() < deadline:
        one = random.choice(KERNELS)
        said = tried(one.problem, one.make, random.randrange(WORKLOADS))
        runs += 1
        if said.reason is not None:
            rejected += 1
            print(f"{one.name}: {said.reason}: {said.detail}", flush=True)
    print(f"{runs} runs of {len(KERNELS)} kernels, {rejected} rejected; torch {torch.__version__}")
    return int(rejected > max(1.0, MOST * runs))


if __name__ == "__main__":
    sys.exit(main())
