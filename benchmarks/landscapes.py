"""Made-up recorded spaces: real configurations, and times whose errors hang together.

The estimate is right but for what a kind of landscape puts on it; a strategy is tuned on the first
kinds, and `HELD_OUT` is looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernel_compass.records.contracts import Config

KINDS = ("families", "pairs", "cliffs")
HELD_OUT = "hidden"


def landscape(
    kind: str, configs: Sequence[Config], estimates: Sequence[float], seed: int
) -> list[float | None]:
    """Times of all points, microseconds; `None` = it fails.

    families: each value of each dimension is wrong by a factor of its own, the kernel's most;
    pairs: each pair of values of two dimensions; cliffs: beyond some size, two to five times as
    slow, or failing; hidden: a factor of the hash of three dimensions together.
    """
    draw = np.random.default_rng([seed, *kind.encode()])
    logs = np.log(np.array(estimates))
    columns = {n: [c[n] for c in configs] for n in configs[0]}
    columns = {n: v for n, v in columns.items() if len(set(map(str, v))) > 1}
    codes = {
        n: np.unique([str(v) for v in vs], return_inverse=True)[1] for n, vs in columns.items()
    }
    if kind == "families":
        for name, code in codes.items():
            size = 0.45 if name == "kernel" else 0.2
            logs = logs + draw.normal(0, size, code.max() + 1)[code]
    names = list(codes)
    if kind in ("pairs", "families", "cliffs"):
        many = 8 if kind == "pairs" else 3
        for _ in range(many):
            a, b = draw.choice(len(names), 2, replace=False)
            table = draw.normal(0, 0.22, (codes[names[a]].max() + 1, codes[names[b]].max() + 1))
            logs = logs + table[codes[names[a]], codes[names[b]]]
    failing = np.zeros(len(configs), dtype=bool)
    if kind == "cliffs":
        size = np.array(
            [np.prod([v for v in c.values() if type(v) is int and v > 0]) for c in configs]
        )
        limit = np.quantile(np.log(size), draw.uniform(0.5, 0.8))
        over = np.log(size) > limit
        logs = logs + over * draw.uniform(np.log(2), np.log(5), len(configs))
        failing = over & (draw.random(len(configs)) < 0.3)
    if kind == HELD_OUT:
        for _ in range(6):
            chosen = draw.choice(len(names), 3, replace=False)
            joint = sum(codes[names[n]] * 31**k for k, n in enumerate(chosen))
            _, joint = np.unique(joint, return_inverse=True)
            logs = logs + draw.normal(0, 0.17, joint.max() + 1)[joint]
    logs = logs + draw.normal(0, 0.05, len(configs))
    return [None if f else float(t) for f, t in zip(failing, np.exp(logs), strict=True)]
