"""What all proposers share: predictions, and what counters should do."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.records.contracts import config_key
from kernel_compass.records.counters import DRAM_BYTES_READ, L2_SECTORS_READ
from kernel_compass.records.loop import Baseline
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.trial import Candidate, CounterMovement, Prediction
from kernel_compass.units import bytes_text, duration_text


def candidate_of(space: CandidateSpace, index: int) -> Candidate:
    """A configuration of a space as a candidate."""
    return Candidate(space.implementation, space.configs[index], space.format, space.source)


def index_of(space: CandidateSpace, candidate: Candidate) -> int | None:
    """Where a candidate stands in a space; `None` = it is not of it."""
    if (space.implementation, space.format) != (candidate.implementation, candidate.format):
        return None
    key = config_key(candidate.config)
    return next((i for i, config in enumerate(space.configs) if config_key(config) == key), None)


def prediction_of(
    space: CandidateSpace, index: int, regimes: Sequence[Regime], baseline_bytes: int | None
) -> Prediction | None:
    """What a configuration should take, and which counter should move; `None` = nothing is known.

    Args:
        space: with its estimates.
        index: of the configuration.
        regimes: those asked for.
        baseline_bytes: of the baseline's weight.
    """
    times = {
        regime: value
        for regime in regimes
        if (value := (space.estimates_us.get(regime) or (None,) * (index + 1))[index]) is not None
    }
    counters: tuple[CounterMovement, ...] = ()
    if baseline_bytes and space.weight_bytes and space.weight_bytes != baseline_bytes:
        # The bytes of the weight move at DRAM where it is cold, at L2 in any case.
        metric = DRAM_BYTES_READ if Regime.COLD in regimes else L2_SECTORS_READ
        counters = (CounterMovement(metric, space.weight_bytes / baseline_bytes),)
    if not times and not counters:
        return None
    return Prediction(times, space.basis, counters)


def bytes_evidence(space: CandidateSpace, baseline_bytes: int | None) -> tuple[str, ...]:
    """What its weight takes beside the baseline's, in a sentence."""
    if space.weight_bytes is None or baseline_bytes is None:
        return ()
    return (f"its weight is {bytes_text(space.weight_bytes)}, {bytes_text(baseline_bytes)} now",)


def floor_evidence(space: CandidateSpace, baseline: Baseline) -> tuple[str, ...]:
    """How far the baseline is from this space's floor, a sentence a regime."""
    found = []
    for one in baseline.regimes:
        floor = space.floors_us.get(one.regime)
        if floor:
            found.append(
                f"{one.regime.value}: {duration_text(one.time_us)} now, its floor is "
                f"{duration_text(floor)} ({space.bounds.get(one.regime, 'bytes')}): at most "
                f"{one.time_us / floor:.2f} times faster"
            )
    return tuple(found)
