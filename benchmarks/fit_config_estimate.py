"""Fit `analysis/config_constants.py`, and how well it orders shapes that it was not fitted on.

    python benchmarks/fit_config_estimate.py [FILE ...] [--held-out]

FILEs are searches (`decode_search.py`), plain or gzipped, or recorded spaces (`record_space.py`);
none = `results/h200/decode_searches.json.gz`, made while the kernels were.
`--held-out` leaves out one weight (op, H, K, N: all its tokens and formats) at a time.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from kernel_compass.analysis.config_estimate import Geometry, estimates_us, geometry
from kernel_compass.codec.recorded_space import read
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload

FILE = Path(__file__).parent / "results" / "h200" / "decode_searches.json.gz"
MULTIPROCESSORS = 132
START: Mapping[str, tuple[float, float]] = {
    # name: value to begin at, and how far log(value) may leave it
    "t0_us": (1.0, 2.0),
    "l2_tb_s": (5.0, 2.0),
    "l2_latency_us": (0.7, 2.0),
    "dram_tb_s": (4.0, 2.0),
    "dram_latency_us": (0.9, 2.0),
    "store_tb_s": (3.0, 2.0),
    "load_hint": (1.0, 0.3),
    "store_hint": (1.0, 0.3),
    "overlap": (0.5, 0.69),
    "wait_power": (0.5, 0.6),
    "step_us": (0.05, 2.0),
    "step_wgmma_us": (0.05, 2.0),
    "held": (1.0, 0.3),
    "l1_gb_s": (200.0, 2.0),
    "mma_tflops": (400.0, 2.0),
    "wgmma_tflops": (600.0, 2.0),
    "convert_4": (20.0, 2.0),
    "convert_8": (20.0, 2.0),
    "convert_16": (80.0, 2.0),
    "warps_wanted": (8.0, 2.0),
    "few_warps_power": (0.5, 1.5),
    "plain": (1.5, 2.0),
    "spill": (1.0, 2.0),
    "wgmma_broad": (1.1, 0.6),
    "meeting_us_kib": (0.03, 2.0),
    "split_us": (0.5, 2.0),
    "norm": (3.0, 0.8),
}
LEVEL = 0.3
"""How much a shape's common error counts beside the errors within it: order is what is wanted."""
LEAST = 12
"""Configurations of a shape below which its order says nothing."""


@dataclass(frozen=True)
class Sample:
    """One measured configuration."""

    workload: Workload
    format: str
    launch: Geometry
    warm_us: float
    cold_us: float

    @property
    def shape(self) -> tuple[str, str]:
        return self.workload.shape_text, self.format

    @property
    def weight(self) -> tuple[object, ...]:
        w = self.workload
        return w.op, w.heads, w.reduction, w.columns


def samples(files: Sequence[Path]) -> list[Sample]:
    """Of all files; a configuration again is the newer one's."""
    found: dict[tuple[object, ...], Sample] = {}
    for file in files:
        for workload, name, config, compiled, warm, cold in rows(file):
            launch = geometry(config, workload, NumberFormat.parse(name), MULTIPROCESSORS, compiled)
            whole = {"ahead": 1, "split": 1, "registers": 0, **config}
            key = (workload, name, json.dumps(whole, sort_keys=True))
            found[key] = Sample(workload, name, launch, warm, cold)
    return list(found.values())


def rows(
    file: Path,
) -> Iterator[tuple[Workload, str, Config, Mapping[str, float], float, float]]:
    data = file.read_bytes()
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    document = json.loads(text)
    if isinstance(document, dict):
        space = read(file)
        for p in space.points:
            if p.warm_us is not None and p.cold_us is not None:
                yield space.workload, space.format.name, p.config, p.static, p.warm_us, p.cold_us
        return
    for row in document:
        op, *sizes = row["workload"]
        workload = Workload(Op(op), *sizes)
        yield workload, row["format"], row["config"], {}, row["warm_us"], row["cold_us"]


def fit(given: Sequence[Sample], tries: int = 40) -> dict[str, float]:
    """Constants: robust least squares on log time, both regimes, with the start as a weak prior."""
    names = list(START)
    start = np.log([START[n][0] for n in names])
    width = np.array([START[n][1] for n in names])
    launches = [s.launch for s in given]
    times = {False: [s.warm_us for s in given], True: [s.cold_us for s in given]}
    shapes = {s.shape: i for i, s in enumerate(given)}
    numbers = list(shapes)
    which = np.array([numbers.index(s.shape) for s in given])
    counts = np.bincount(which)

    def residuals(theta: np.ndarray) -> np.ndarray:
        constants = dict(zip(names, np.exp(theta), strict=True))
        found = [0.3 * (theta - start) / width]
        for cold, measured in times.items():
            estimated = estimates_us(launches, cold, MULTIPROCESSORS, constants)
            error = np.log(estimated / np.array(measured))
            common = (np.bincount(which, error) / counts)[which]
            found.append(error - (1 - LEVEL) * common)
        return np.concatenate(found)

    bounds = (start - width - 1e-6, start + width + 1e-6)
    done = least_squares(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.15, max_nfev=tries
    )
    return {n: float(v) for n, v in zip(names, np.exp(done.x), strict=True)}


def order(given: Sequence[Sample], constants: Mapping[str, float]) -> list[tuple[float, float]]:
    """Kendall's tau and top-10 regret of each shape, format and regime."""
    groups = defaultdict(list)
    for sample in given:
        groups[sample.shape].append(sample)
    found = []
    for mine in groups.values():
        if len(mine) < LEAST:
            continue
        for cold in (False, True):
            e = estimates_us([s.launch for s in mine], cold, MULTIPROCESSORS, constants)
            t = np.array([s.cold_us if cold else s.warm_us for s in mine])
            signs = np.sign(e[:, None] - e) * np.sign(t[:, None] - t)
            tau = float(signs.sum() / (len(t) * (len(t) - 1)))
            regret = float(t[np.argsort(e, kind="stable")[:10]].min() / t.min() - 1)
            found.append((tau, regret))
    return found


def words(found: Sequence[tuple[float, float]]) -> str:
    taus, regrets = np.array(found).T
    return (
        f"{len(found)} orders: tau median {np.median(taus):.3f}, lower quartile "
        f"{np.quantile(taus, 0.25):.3f}; top-10 regret mean {100 * regrets.mean():.2f} %, "
        f"worst {100 * regrets.max():.1f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*", default=[FILE])
    parser.add_argument("--held-out", action="store_true")
    args = parser.parse_args()
    given = samples(args.files)
    constants = fit(given)
    print(json.dumps({n: float(f"{v:.4g}") for n, v in constants.items()}, indent=4))
    print(f"{len(given)} configurations; in the fit: {words(order(given, constants))}")
    if args.held_out:
        found = []
        for weight in sorted({s.weight for s in given}):
            rest = [s for s in given if s.weight != weight]
            mine = [s for s in given if s.weight == weight]
            found += order(mine, fit(rest, tries=20))
            print(f"   without {weight}: {words(found)}" if found else "", flush=True)
        print(f"held out, a weight at a time: {words(found)}")


if __name__ == "__main__":
    main()
