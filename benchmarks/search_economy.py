"""How many configurations a strategy measures until it is within 3 % of the best.

    python benchmarks/search_economy.py [--spaces FOLDER] [--seeds 20] [--json FILE]

On recorded spaces (`record_space.py`): medians over seeds, each strategy on the same points, those
that a static compilation rules out left out for all of them alike. A failure is an evaluation too.
Held-out spaces (`--held-out`, by part of the file's name) are marked: nothing was tuned on them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from kernel_compass.analysis.config_constants import H200
from kernel_compass.analysis.config_estimate import estimates_us
from kernel_compass.analysis.config_geometry import geometry
from kernel_compass.codec.recorded_space import read
from kernel_compass.errors import MissingDependency, UsageError
from kernel_compass.optimizer.search.prune import Compiled, Limits, prune
from kernel_compass.optimizer.search.space_inputs import SpaceInputs
from kernel_compass.optimizer.search.strategies import make_strategy
from kernel_compass.records.contracts import Config
from kernel_compass.records.profile import Regime
from kernel_compass.records.recorded_space import PointFailure, RecordedPoint, RecordedSpace

FOLDER = Path(__file__).parent / "results" / "h200" / "spaces"
WITHIN = 1.03
STRATEGIES = ("model", "random", "exhaustive", "optuna")


@dataclass(frozen=True)
class Landscape:
    """A space with its times in one regime."""

    name: str
    configs: Sequence[Config]
    times: Sequence[float | None]
    estimates: Sequence[float | None]
    features: Sequence[Mapping[str, float] | None] = ()
    whole: int = 0
    """Configurations before the prune."""
    held_out: bool = False

    @property
    def best(self) -> float:
        return min(t for t in self.times if t is not None)

    @property
    def near(self) -> int:
        return sum(t is not None and t <= WITHIN * self.best for t in self.times)


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    space: str
    configs: int
    pruned: int
    near: int
    near_pct: float
    held_out: bool
    tau: float | None
    medians: Mapping[str, float]
    worst: Mapping[str, float]
    ask_ms: Mapping[str, float]


def kept(space: RecordedSpace) -> list[RecordedPoint]:
    """The points that a static compilation leaves."""
    compiled = [
        Compiled(p.static if "registers" in p.static else None)
        if p.failure is not PointFailure.COMPILE
        else Compiled(p.static if "registers" in p.static else None, p.detail)
        for p in space.points
    ]
    known = any(c.figures for c in compiled)
    verdicts = prune(compiled, [str(p.config.get("kernel")) for p in space.points], Limits())
    pairs = zip(space.points, verdicts, strict=True)
    return [p for p, v in pairs if not known or v.dropped is None]


def of_recording(
    space: RecordedSpace,
    regime: Regime,
    held_out: bool,
    constants: Mapping[str, float] = H200,
    compiled: bool = False,
) -> Landscape:
    """The points that are left, and what is known of them before measuring.

    Args:
        space: recorded.
        regime: whose times count.
        held_out: whether nothing was tuned on it.
        constants: of the estimates.
        compiled: whether the strategy is told what a static compilation found; the estimates are
            made before one, as in the loop.
    """
    points = kept(space)
    multiprocessors = space.environment.device.sm_count or 132
    launches = [geometry(p.config, space.workload, space.format, multiprocessors) for p in points]
    estimates = estimates_us(launches, regime is Regime.COLD, multiprocessors, constants)
    return Landscape(
        name=f"{space.workload.shape_text} {space.format.name} {regime.value}",
        configs=[p.config for p in points],
        times=[p.time_us(regime) for p in points],
        estimates=[float(e) for e in estimates],
        features=[p.static or None for p in points] if compiled else (),
        whole=len(space.points),
        held_out=held_out,
    )


def evaluations(landscape: Landscape, name: str, seed: int, most: int) -> tuple[int, float]:
    """How many were measured until one was within 3 %, and seconds of a question."""
    inputs = SpaceInputs(landscape.configs, landscape.estimates)
    strategy = make_strategy(name, inputs, seed, features=landscape.features)
    goal, spent = WITHIN * landscape.best, 0.0
    for count in range(1, most + 1):
        begin = time.perf_counter()
        asked = strategy.ask(1)
        spent += time.perf_counter() - begin
        if not asked:
            break
        found = landscape.times[asked[0]]
        strategy.tell(asked[0], found)
        if found is not None and found <= goal:
            return count, spent / count
    return most, spent / most


def behind(landscape: Landscape, name: str, seed: int, count: int) -> float:
    """Of so many evaluations, how much slower the best is than the space's: 0.05 = by 5 %."""
    inputs = SpaceInputs(landscape.configs, landscape.estimates)
    strategy = make_strategy(name, inputs, seed, features=landscape.features)
    found = float("inf")
    for _ in range(count):
        for index in strategy.ask(1):
            strategy.tell(index, landscape.times[index])
            found = min(found, landscape.times[index] or float("inf"))
    return found / landscape.best - 1


def row_of(landscape: Landscape, strategies: Sequence[str], seeds: int, most: int) -> Row:
    medians, worst, ask = {}, {}, {}
    for name in strategies:
        limit = min(most, 400) if name == "optuna" else len(landscape.configs)
        runs = [evaluations(landscape, name, seed, limit) for seed in range(seeds)]
        medians[name] = float(median(count for count, _ in runs))
        worst[name] = float(max(count for count, _ in runs))
        ask[name] = round(1e3 * median(spent for _, spent in runs), 2)
    return Row(
        landscape.name,
        len(landscape.configs),
        landscape.whole - len(landscape.configs) if landscape.whole else 0,
        landscape.near,
        round(100 * landscape.near / (landscape.whole or len(landscape.configs)), 2),
        landscape.held_out,
        tau_of(landscape),
        medians,
        worst,
        ask,
    )


def tau_of(landscape: Landscape) -> float | None:
    """Kendall's tau of estimates and times."""
    pairs = [
        (e, t)
        for e, t in zip(landscape.estimates, landscape.times, strict=True)
        if e is not None and t is not None
    ]
    e, t = np.array(pairs, dtype=float).T
    signs = np.sign(e[:, None] - e) * np.sign(t[:, None] - t)
    return round(float(signs.sum() / (len(e) * (len(e) - 1))), 3)


def table(rows: Sequence[Row], strategies: Sequence[str]) -> str:
    """Markdown."""
    heads = ["space", "configs", "within 3 %", "tau", *strategies, "target"]
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    for r in rows:
        near = f"{r.near} ({r.near_pct:.1f} %)"
        cells = [r.space + (" (held out)" if r.held_out else ""), str(r.configs), near]
        cells += [f"{r.tau:.2f}" if r.tau is not None else ""]
        cells += [f"{r.medians[n]:.0f} (worst {r.worst[n]:.0f})" for n in strategies]
        lines.append(" | ".join([*cells, verdict(r)]))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def verdict(row: Row) -> str:
    """Whether the space is one that counts, and `model` as economical as it should be."""
    if row.configs + row.pruned < 400 or row.near_pct > 1:
        return "not counted"
    own, other = row.medians.get("model"), row.medians.get("random")
    if own is None or other is None:
        return ""
    return "met" if own <= 25 and own <= other / 4 else "missed"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spaces", type=Path, default=FOLDER)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--regimes", default="warm,cold")
    parser.add_argument("--held-out", default="", help="parts of file names, separated by commas")
    parser.add_argument("--constants", type=Path, help="by file, of fit_config_estimate.py")
    parser.add_argument("--compiled", action="store_true", help="tell `model` what compiled")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    strategies = args.strategies.split(",")
    files = sorted(args.spaces.glob("*.json.gz"))
    if not files:
        print(f"error: no recorded space in {args.spaces}; see record_space.py", file=sys.stderr)
        return 2
    rows: list[Row] = []
    fitted = json.loads(args.constants.read_text()) if args.constants else {}
    hidden = [part for part in args.held_out.split(",") if part]
    try:
        for file in files:
            space = read(file)
            for regime in map(Regime, args.regimes.split(",")):
                left_out = file.name in fitted or any(part in file.name for part in hidden)
                constants = fitted.get(file.name, H200)
                landscape = of_recording(space, regime, left_out, constants, args.compiled)
                rows.append(row_of(landscape, strategies, args.seeds, 400))
                print(rows[-1], file=sys.stderr, flush=True)
    except (UsageError, MissingDependency) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(rows, strategies))
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
