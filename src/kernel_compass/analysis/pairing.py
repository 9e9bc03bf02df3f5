"""Interleaved times as pairs, and pairs as log ratios; everything unfit is refused here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.records.measurement import Measurement, PairedSamples
from kernel_compass.records.profile import Regime

Array = npt.NDArray[np.float64]
BLOCK = 4
"""Times of one ABBA block."""


def fold_abba(times_us: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Times in the order measured, A B B A A B B A ..., to one pair a block.

    The two A of a block lie around its two B, so whatever drifts linearly in time adds the same
    to the mean of either; a drift is no difference.

    Returns:
        Means of the A and of the B times, one a block, microseconds.

    Raises:
        UsageError: not whole blocks.
    """
    if not times_us or len(times_us) % BLOCK:
        raise UsageError(
            f"{len(times_us)} times are not whole ABBA blocks.", "Measure blocks of four."
        )
    blocks = np.asarray(times_us, dtype=np.float64).reshape(-1, BLOCK)
    outer, inner = blocks[:, [0, 3]].mean(axis=1), blocks[:, [1, 2]].mean(axis=1)
    return tuple(outer.tolist()), tuple(inner.tolist())


def paired(baseline: Measurement, candidate: Measurement, process: int = 0) -> PairedSamples:
    """Two measurements whose samples were taken in turn: sample i of one with i of the other.

    Raises:
        UsageError: the two were not measured alike, so their ratio is no speedup.
    """
    for name in ("regime", "launch_mode", "launches_per_replay", "cold_method"):
        ours, theirs = getattr(baseline, name), getattr(candidate, name)
        if ours != theirs:
            raise UsageError(
                f"The baseline was measured with {name} {ours}, the candidate with {theirs}.",
                "Measure both in one interleaved run with the same settings.",
            )
    if baseline.environment.device != candidate.environment.device:
        raise UsageError("The two sides were measured on different devices.", "Use one device.")
    return PairedSamples(
        baseline.samples_us,
        candidate.samples_us,
        baseline.regime,
        baseline.launch_mode,
        baseline.launches_per_replay,
        process,
    )


def log_ratios(pairs: PairedSamples) -> Array:
    """log(baseline / candidate) of every pair, in the order measured; > 0 where it is faster.

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
    bad = ~(np.isfinite(times) & (times > 0))
    if bad.any():
        raise MeasurementError(
            MeasurementCause.UNSTABLE,
            f"{int(bad.sum())} of {times.size} times are not positive numbers "
            f"(first: {times[bad][0]} us).",
            "A slope at or below 0 means that launches are too few a replay: raise their number.",
        )
    logs: Array = np.log(times[0]) - np.log(times[1])
    return logs


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
