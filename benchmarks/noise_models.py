"""Timing noise of pairs: made up, or resampled from recorded A/A comparisons.

`process(rng, pairs, effect)` gives the pairs of one fresh process whose candidate is `effect`
times as fast as the baseline (before what placement in memory does to it).

Recorded noise is a JSON file:

    {"environment": {...}, "kernel": "...",
     "pairs": [{"baseline_us": [...], "candidate_us": [...], "process": 0}, ...]}

with pairs of one kernel compared with itself, in the order measured; optional at the top:
"regime", "launch_mode", "launches_per_replay".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "h200_noise.json"
STRETCH = 50
"""Pairs that stay together when recorded noise is resampled: correlation under this survives."""


class Noise(Protocol):
    """Where pairs come from."""

    def process(
        self, rng: np.random.Generator, pairs: int, effect: float = 1.0, number: int = 0
    ) -> PairedSamples: ...


@dataclass(frozen=True)
class MadeUpNoise:
    """Lognormal with heavy tails, serially correlated, with outliers on either side.

    Standard deviations of one pair's ratio, percent.
    """

    white_pct: float
    """Independent from pair to pair; Student's t with 4 degrees of freedom."""
    serial_pct: float = 0.0
    """AR(1): what a wandering clock leaves in the ratio of two kernels that feel it unlike."""
    correlation: float = 0.0
    """Of successive pairs in the AR(1) part."""
    outliers: float = 0.02
    """Share of pairs with one disturbed side: 5 to 50 % longer."""
    placement_pct: float = 0.0
    """Between processes."""
    clock_pct: float = 3.0
    """A slow wander that both sides share; cancels in the ratio."""

    def process(
        self, rng: np.random.Generator, pairs: int, effect: float = 1.0, number: int = 0
    ) -> PairedSamples:
        ratio = np.log(effect) + rng.normal() * self.placement_pct / 100
        noise = rng.standard_t(4, pairs) / np.sqrt(2) * self.white_pct / 100
        noise += ar1(rng, pairs, self.correlation) * self.serial_pct / 100
        shared = ar1(rng, pairs, 0.99) * self.clock_pct / 100
        logs = np.stack([ratio + noise / 2, -noise / 2]) + shared
        disturbed = rng.random(pairs) < self.outliers
        side = rng.integers(0, 2, pairs)
        logs[side[disturbed], np.flatnonzero(disturbed)] += rng.uniform(0.05, 0.4, disturbed.sum())
        return samples(10 * np.exp(logs), number)


class RecordedNoise:
    """Stretches of recorded A/A pairs, each process keeping its own offset."""

    def __init__(self, path: Path) -> None:
        document = json.loads(path.read_text(encoding="utf-8"))
        self.environment = document["environment"]
        self.kernel = document["kernel"]
        self.regime = Regime(document.get("regime", "warm"))
        self.launch_mode = LaunchMode(document.get("launch_mode", "graph"))
        self.launches_per_replay = int(document.get("launches_per_replay", 1))
        runs: dict[int, list[np.ndarray]] = {}
        for run in document["pairs"]:
            times = np.array([run["baseline_us"], run["candidate_us"]], dtype=float)
            runs.setdefault(int(run["process"]), []).append(times)
        self.processes = [np.concatenate(times, axis=1) for _, times in sorted(runs.items())]

    def samples(self) -> list[PairedSamples]:
        """The recording itself."""
        return [self._paired(times, number) for number, times in enumerate(self.processes)]

    def process(
        self, rng: np.random.Generator, pairs: int, effect: float = 1.0, number: int = 0
    ) -> PairedSamples:
        times = self.processes[rng.integers(len(self.processes))]
        starts = rng.integers(0, times.shape[1], -(-pairs // STRETCH))
        at = (starts[:, None] + np.arange(STRETCH)).ravel()[:pairs] % times.shape[1]
        return self._paired(times[:, at] / np.array([[1.0], [effect]]), number)

    def _paired(self, times: np.ndarray, number: int) -> PairedSamples:
        return samples(times, number, self.regime, self.launch_mode, self.launches_per_replay)


MADE_UP: dict[str, MadeUpNoise] = {
    "quiet": MadeUpNoise(0.5, placement_pct=0.1),
    "usual": MadeUpNoise(1.2, 0.9, 0.5, placement_pct=0.3),
    "rough": MadeUpNoise(2.8, 2.1, 0.5, outliers=0.05, placement_pct=0.5),
    "wandering": MadeUpNoise(1.5, 0.7, 0.95, placement_pct=0.3),
}
"""Pair noise 0.5, 1.5 and 3.5 %; the last with a slow part that lasts some 40 pairs."""


def ar1(rng: np.random.Generator, count: int, correlation: float) -> np.ndarray:
    """A stationary AR(1) series of unit variance."""
    steps = rng.normal(size=count)
    steps[1:] *= np.sqrt(1 - correlation**2)
    shift = 1
    while shift < count and correlation:  # sums of 2, 4, 8, ... steps: the recursion, in parallel
        steps[shift:] += correlation**shift * steps[:-shift]
        shift *= 2
    return steps


def samples(
    times: np.ndarray,
    number: int = 0,
    regime: Regime = Regime.WARM,
    launch_mode: LaunchMode = LaunchMode.GRAPH,
    launches_per_replay: int = 20,
) -> PairedSamples:
    """Pairs from an array (2, pairs) of microseconds: baseline, candidate."""
    return PairedSamples(
        tuple(times[0].tolist()),
        tuple(times[1].tolist()),
        regime,
        launch_mode,
        launches_per_replay,
        number,
    )


def known() -> dict[str, Noise]:
    """The made-up noises and, where it is there, the recorded one."""
    found: dict[str, Noise] = dict(MADE_UP)
    if RECORDED.is_file():
        found["recorded"] = RecordedNoise(RECORDED)
    return found
