"""Fit `analysis/config_constants.py`, and how well it orders shapes that it was not fitted on.

    python benchmarks/fit_config_estimate.py [FILE ...] [--without SHAPE,...] [--held-out FILE.json]

FILEs are recorded spaces (`record_space.py`) or searches (`decode_search.py`), plain or gzipped;
none = all of `results/h200/spaces`, and `results/h200/decode_searches.json.gz`, made while the
kernels were. `--without` leaves out shapes of which a part is in their name, e.g. 16x4096x14336.
`--held-out` leaves out the shape of one space at a time as well, everywhere, and writes the
constants of each fit by the space's file: `search_economy.py --constants` searches with them.
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
from search_economy import FOLDER, kept

from kernel_compass.analysis.config_estimate import columns, estimates_us, times_us
from kernel_compass.analysis.config_geometry import Geometry, geometry
from kernel_compass.codec.recorded_space import read
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload

FILE = Path(__file__).parent / "results" / "h200" / "decode_searches.json.gz"
MULTIPROCESSORS = 132
COLD = (False, True)
START: Mapping[str, tuple[float, float]] = {
    # name: value to begin at, and how far log(value) may leave it
    "t0_us": (1.2, 0.7),
    "l2_tb_s": (8.0, 0.9),
    "l2_latency_us": (0.3, 1.2),
    "dram_tb_s": (4.2, 0.4),
    "dram_latency_us": (0.6, 0.7),
    "store_tb_s": (4.0, 1.0),
    "load_hint": (1.0, 0.3),
    "store_hint": (1.0, 0.3),
    "loop": (0.5, 1.5),
    "chunk_kib": (3.0, 1.5),
    "fence": (0.3, 1.5),
    "wait": (0.7, 1.5),
    "chains_power": (0.2, 2.0),
    "warp_us_2048": (0.05, 2.5),
    "l1_gb_s": (300.0, 2.0),
    "mma_tflops": (600.0, 2.0),
    "wgmma_tflops": (800.0, 2.0),
    "convert_4": (15.0, 2.0),
    "convert_8": (10.0, 2.0),
    "convert_16": (40.0, 2.0),
    "warps_wanted": (16.0, 1.5),
    "few_warps_power": (0.3, 1.2),
    "plain": (1.5, 1.0),
    "spill": (0.1, 2.0),
    "occupancy": (0.05, 2.0),
    "meeting_us_kib": (0.01, 2.0),
    "sync_us": (0.03, 2.5),
    "split_us": (0.5, 1.5),
    "norm": (3.0, 0.8),
    "chain_norm": (1.5, 0.6),
}
PRIOR = 0.1
"""How much the start counts: one width away from it, as a configuration off by a tenth."""
LEVEL = 0.3
"""How much a shape's common error counts beside the errors within it: order is what is wanted."""
FAST = 0.15
"""Times the best by which a configuration is slower that counts 1/e of it: who is slow by half need
not be told from who is slow by twice as much."""
SLOWEST = 0.003
"""What every configuration counts at least."""
SEARCHED = 0.2
"""What a search counts beside a space: it measured what looked sensible, and older kernels."""
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
    counts: float = 1.0
    """Of a space, or `SEARCHED`."""

    @property
    def shape(self) -> tuple[str, str]:
        return self.workload.shape_text, self.format


def samples(files: Sequence[Path]) -> list[Sample]:
    """Of all files; a configuration again is the newer one's."""
    found: dict[tuple[object, ...], Sample] = {}
    for file in files:
        for row in rows(file):
            whole = {"ahead": 1, "split": 1, "registers": 0, **row.config}
            key = (row.workload, row.format, row.counts, json.dumps(whole, sort_keys=True))
            found[key] = row.sample()
    return list(found.values())


@dataclass(frozen=True)
class Row:
    """A line of a file."""

    workload: Workload
    format: str
    config: Config
    compiled: Mapping[str, float]
    warm_us: float
    cold_us: float
    counts: float

    def sample(self) -> Sample:
        w, f = self.workload, NumberFormat.parse(self.format)
        launch = geometry(self.config, w, f, MULTIPROCESSORS, self.compiled)
        return Sample(w, self.format, launch, self.warm_us, self.cold_us, self.counts)


def rows(file: Path) -> Iterator[Row]:
    """Of a search or a space; what a static compilation rules out of a space is never measured."""
    data = file.read_bytes()
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    document = json.loads(text)
    if isinstance(document, dict):
        space = read(file)
        for p in kept(space):
            if p.warm_us is not None and p.cold_us is not None:
                yield Row(
                    space.workload, space.format.name, p.config, p.static, p.warm_us, p.cold_us, 1.0
                )  # fmt: skip
        return
    for row in document:
        op, *sizes = row["workload"]
        workload = Workload(Op(op), *sizes)
        times = row["warm_us"], row["cold_us"]
        yield Row(workload, row["format"], row["config"], {}, *times, SEARCHED)


def fit(given: Sequence[Sample], tries: int = 40) -> dict[str, float]:
    """Constants: robust least squares on log time, both regimes, with the start as a weak prior."""
    names = list(START)
    start = np.log([START[n][0] for n in names])
    width = np.array([START[n][1] for n in names])
    table = columns([s.launch for s in given])
    groups: dict[tuple[object, ...], int] = {}
    which = np.array([groups.setdefault((*s.shape, s.counts), len(groups)) for s in given])
    times = {cold: np.array([s.cold_us if cold else s.warm_us for s in given]) for cold in COLD}
    weights = {cold: weights_of(given, t, which) for cold, t in times.items()}

    def residuals(theta: np.ndarray) -> np.ndarray:
        constants = dict(zip(names, np.exp(theta), strict=True))
        found = [PRIOR * (theta - start) / width]
        for cold, measured in times.items():
            weight = weights[cold]
            error = np.log(times_us(table, cold, MULTIPROCESSORS, constants) / measured)
            sums = np.bincount(which, error * weight**2) / np.bincount(which, weight**2)
            found.append(weight * (error - (1 - LEVEL) * sums[which]))
        return np.concatenate(found)

    bounds = (start - width - 1e-6, start + width + 1e-6)
    done = least_squares(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=0.1, max_nfev=tries
    )
    return {n: float(v) for n, v in zip(names, np.exp(done.x), strict=True)}


def weights_of(given: Sequence[Sample], times: np.ndarray, which: np.ndarray) -> np.ndarray:
    """The fast count; all of a shape together as the root of how many they are, 400 at most."""
    best = np.full(which.max() + 1, np.inf)
    np.minimum.at(best, which, times)
    each = np.exp(-(times / best[which] - 1) / FAST) + SLOWEST
    whole = np.minimum(np.bincount(which), 400) ** 0.5 / np.bincount(which, each)
    counts = np.array([s.counts for s in given])
    found: np.ndarray = counts * np.sqrt(each * whole[which])
    return found


def order(given: Sequence[Sample], constants: Mapping[str, float]) -> list[tuple[float, float]]:
    """Kendall's tau and top-10 regret of each shape, format and regime."""
    groups = defaultdict(list)
    for sample in given:
        groups[*sample.shape, sample.counts].append(sample)
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
    parser.add_argument("files", type=Path, nargs="*", default=[FILE, *sorted(FOLDER.iterdir())])
    parser.add_argument("--without", default="", help="parts of shapes, separated by commas")
    parser.add_argument("--held-out", type=Path)
    args = parser.parse_args()
    parts = [part for part in args.without.split(",") if part]
    everything = samples(args.files)
    given = [s for s in everything if not any(part in s.shape[0] for part in parts)]
    constants = rounded(fit(given))
    print(json.dumps(constants, indent=4))
    print(f"{len(given)} configurations; in the fit: {words(order(given, constants))}")
    if args.held_out:
        spaces = {file.name: shape for file in args.files if (shape := shape_of(file)) is not None}
        without = {}
        found = []
        for name, shape in spaces.items():
            without[name] = rounded(fit([s for s in given if s.shape[0] != shape]))
            mine = [s for s in everything if s.shape[0] == shape and s.counts == 1.0]
            found += order(mine, without[name])
            print(f"   without {shape}: {words(found[-2:])}", flush=True)
        print(f"held out, a shape at a time: {words(found)}")
        args.held_out.write_text(json.dumps(without, indent=1) + "\n")


def shape_of(file: Path) -> str | None:
    """Of a recorded space; `None` where it is a search."""
    first = next(rows(file))
    return first.workload.shape_text if first.counts == 1.0 else None


def rounded(constants: Mapping[str, float]) -> dict[str, float]:
    return {n: float(f"{v:.4g}") for n, v in constants.items()}


if __name__ == "__main__":
    main()
