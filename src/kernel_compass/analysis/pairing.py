"""Pairs as log ratios; everything unfit is refused here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.records.measurement import PairedSamples
from kernel_compass.records.profile import Regime

Array = npt.NDArray[np.float64]
TOLERATED = 0.05
"""Share of slopes at or below 0 that noise may leave in: their pairs are dropped."""


def log_ratios(pairs: PairedSamples) -> Array:
    """log(baseline / candidate) of every pair, in the order measured; > 0 where it is faster.

    A slope is a difference, and noise can make one at or below 0: up to 5 % of the pairs may hold
    one and are dropped.

    Raises:
        UsageError: sides of different length, no pair, or an unknown regime.
        MeasurementError: a time that is no time.
    """
    ours, theirs = len(pairs.baseline_us), len(pairs.candidate_us)
    if ours != theirs or not ours:
        raise UsageError(
            f"{ours} baseline times and {theirs} candidate times are no pairs.",
            "Every block must give one of each.",
        )
    if pairs.regime is Regime.UNKNOWN:
        raise UsageError("Pairs of unknown regime.", "A speedup is of a regime: measure in one.")
    times = np.asarray([pairs.baseline_us, pairs.candidate_us], dtype=np.float64)
    finite = np.isfinite(times).all(axis=0)
    good = finite & (times > 0).all(axis=0)
    if not finite.all() or (~good).mean() > TOLERATED:
        bad = times[:, ~good]
        raise MeasurementError(
            MeasurementCause.UNSTABLE,
            f"{bad.shape[1]} of {ours} pairs hold a time that is not a positive number "
            f"(first: {bad[~(np.isfinite(bad) & (bad > 0))][0]} us).",
            "The slopes are lost in noise: use longer replays (TimingOptions(replay_us=...)) on a "
            "quiet GPU.",
        )
    logs: Array = np.log(times[0, good]) - np.log(times[1, good])
    return logs


def said_against(samples: Sequence[PairedSamples]) -> tuple[str, ...]:
    """The warnings of some samples, each once."""
    return tuple(dict.fromkeys(words for run in samples for words in run.warnings))


def check_alike(first: PairedSamples, other: PairedSamples) -> None:
    """Refuse to join pairs that were measured differently.

    Raises:
        UsageError: another regime, launch mode or number of launches a replay.
    """
    for name in ("regime", "launch_mode", "launches_per_replay"):
        ours, theirs = getattr(first, name), getattr(other, name)
        if ours != theirs:
            raise UsageError(
                f"Pairs with {name} {ours} and pairs with {theirs} in one comparison.",
                "Compare each on its own.",
            )
