"""Stage 2 for one kernel of a timeline: what times, gaps and known shapes can say.

A timeline has no counters: how busy a level was is estimated from the bytes that the operator must
move, and only where a calibration gives the bandwidth to compare with. Every confidence is capped
below what counters give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernel_compass.analysis.advice import LIMITER_ADVICE, launch_advice
from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.launch_verdict import (
    SMALL_GAP_SHARE,
    LaunchEvidence,
    launch_numbers,
)
from kernel_compass.analysis.timeline_groups import SeenKernel
from kernel_compass.analysis.timeline_runs import TYPICAL, FixedCost
from kernel_compass.analysis.utilization import BUSY_PCT, PLAUSIBLE_PCT
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Flag, Headroom, Limiter
from kernel_compass.records.profile import Regime
from kernel_compass.records.timeline import KernelTimeline
from kernel_compass.records.workload import Traffic

CONFIRMED_CAP = 0.65
"""launch_bound with gaps: what counters alone give at most is 0.7."""
SUSPECTED_CAP = 0.5
"""launch_bound by the duration alone."""
ESTIMATED_CAP = 0.5
"""dram_bound and compute_bound from the bytes and operations of the operator."""
RESIDENT_CAP = 0.35
"""dram_bound where L2 could have held the bytes."""
UNCLASSIFIED_CONFIDENCE = 0.2
CREDIBLE_PCT = PLAUSIBLE_PCT
"""Over this share of a ceiling nothing is claimed: caches served bytes that DRAM is said to, or the
calibration or the operator's count is not right."""
NOTICEABLY_FASTER = 0.98
"""A headroom under this is explained."""

Floor = Callable[[Traffic, Regime], float | None]
"""Time in microseconds that the operator takes at least on this machine in a regime."""

COUNTERS_ADVICE = (
    "counters say which level is busy, whether L2 held the bytes and what warps wait for: "
    "kernel-compass profile SCRIPT"
)
ESTIMATE_ADVICE = "an estimate from the operator's shapes; counters tell what really moved"


@dataclass(frozen=True)
class _Rate:
    """What an operator's work over its time reaches of a ceiling."""

    limiter: Limiter
    percent: float
    evidence: tuple[Evidence, ...]
    cap: float = ESTIMATED_CAP

    @property
    def is_credible(self) -> bool:
        """Whether a kernel can have reached it."""
        return self.percent <= CREDIBLE_PCT


def diagnose_seen(
    kernel: SeenKernel,
    sm_count: int | None = None,
    ceilings: Ceilings | None = None,
    floor: Floor | None = None,
    fixed: FixedCost = TYPICAL,
) -> Diagnosis:
    """Diagnose one kernel of a timeline. Pure.

    Args:
        kernel: its launches and what its operators must move.
        sm_count: of the GPU, where known.
        ceilings: what the machine reaches; without it no bandwidth is judged.
        floor: the time an operator takes at least; without it there is no headroom.
        fixed: what a launch costs on this GPU.
    """
    stats = kernel.profile.duration_stats
    assert stats is not None  # every event of a timeline has a duration
    evidence = LaunchEvidence.of(stats.median, kernel.profile.launches, kernel.seen, fixed)
    rates = sorted(_rates(kernel, stats.mean, ceilings), key=lambda rate: -rate.percent)
    busy = _busy(rates)
    flags = _flags(kernel, sm_count)
    headroom, room = _headroom(kernel, stats.mean, floor)
    limiter, confidence, numbers = _limiter(evidence, busy)
    others = [number for rate in rates for number in rate.evidence if rate is not busy]
    if headroom is not None and headroom.value < NOTICEABLY_FASTER:
        numbers, room = (numbers[0], *room, *numbers[1:]), ()  # not for the end of the list
    return Diagnosis(
        limiter=limiter,
        confidence=round(confidence, 2),
        evidence=(
            *numbers,
            *others,
            *_launching(kernel.seen),
            *_grid(flags, kernel, sm_count),
            *room,
        ),
        flags=flags,
        headroom=headroom,
        advice=_advice(limiter, kernel),
    )


def _busy(rates: Sequence[_Rate]) -> _Rate | None:
    """The busiest ceiling that can be believed; of operations that cannot be, the bytes of the same
    operator are not believed either."""
    if any(rate.limiter is Limiter.COMPUTE_BOUND and not rate.is_credible for rate in rates):
        return None
    return next((rate for rate in rates if rate.percent >= BUSY_PCT and rate.is_credible), None)


def _limiter(
    evidence: LaunchEvidence, busy: _Rate | None
) -> tuple[Limiter, float, tuple[Evidence, ...]]:
    """The limiter, its capped confidence and the numbers behind it."""
    numbers = launch_numbers(evidence)
    if busy is not None:
        margin = min((busy.percent - BUSY_PCT) / 20.0, 1.0)
        return busy.limiter, busy.cap * (0.5 + 0.5 * margin), (*busy.evidence, numbers[0])
    if evidence.near_fixed:
        near = evidence.fixed.near_us
        margin = min((near - evidence.duration_us) / (near / 2.0), 1.0)
        cap = CONFIRMED_CAP if evidence.gap_dominates else SUSPECTED_CAP
        return Limiter.LAUNCH_BOUND, cap * (0.5 + 0.5 * margin), numbers
    if evidence.gap_dominates:
        return Limiter.LAUNCH_BOUND, SUSPECTED_CAP, numbers
    noticeable = (evidence.gap_before_us or 0.0) > SMALL_GAP_SHARE * evidence.duration_us
    return Limiter.UNCLASSIFIED, UNCLASSIFIED_CONFIDENCE, numbers if noticeable else numbers[:1]


def _rates(kernel: SeenKernel, duration_us: float, ceilings: Ceilings | None) -> Iterator[_Rate]:
    """What the operators' bytes and operations over the kernel's time are of the ceilings.

    Of launches for several shapes it is a ratio of sums.
    """
    moved, flops = kernel.compulsory_bytes, kernel.flops
    if moved is None or flops is None or duration_us <= 0:
        return
    tbs = moved / duration_us / 1e6
    meaning = f"what the operator must move, {tbs:.2f} TB/s if all of it came from DRAM"
    number = Evidence("compulsory_bytes", moved, "bytes", meaning)
    if ceilings is None:
        yield _Rate(Limiter.DRAM_BOUND, 0.0, (number,))
        return
    fits = all(traffic.total_bytes <= ceilings.c_eff_bytes for traffic, _ in kernel.traffics)
    percent = 100.0 * tbs / ceilings.bw_dram_tbs
    doubt = ", if L2 did not hold them: they would fit" if fits else ""
    share = _share("compulsory_of_dram_pct", percent, "DRAM bandwidth", doubt)
    cap = RESIDENT_CAP if fits else ESTIMATED_CAP
    yield _Rate(Limiter.DRAM_BOUND, percent, (share, number), cap)
    formats = {traffic.math for traffic, _ in kernel.traffics}
    peak = ceilings.peak_tflops.get(formats.pop()) if len(formats) == 1 else None
    if peak:
        percent = 100.0 * flops / duration_us / (peak * 1e6)
        name = f"{kernel.traffics[0][0].math} peak"
        share = _share("compulsory_of_peak_pct", percent, name, "")
        yield _Rate(Limiter.COMPUTE_BOUND, percent, (share,))


def _share(metric: str, percent: float, ceiling: str, doubt: str) -> Evidence:
    meaning = f"of the calibrated {ceiling}, an estimate from the operator's shapes{doubt}"
    if percent > CREDIBLE_PCT and metric == "compulsory_of_dram_pct":
        meaning = f"of the calibrated {ceiling}: much of it came from caches"
    elif percent > CREDIBLE_PCT:
        meaning = (
            f"of the calibrated {ceiling}, more than there is: the calibration's peak is too low, "
            "or the operator's shapes are not what the kernel computes; nothing is claimed from it"
        )
    elif percent > 100.0:
        meaning += "; over 100 % by what calibrations and clocks differ"
    return Evidence(metric, percent, "%", meaning, BUSY_PCT)


def _launching(seen: KernelTimeline) -> Iterator[Evidence]:
    if seen.launch_delay_us is not None and seen.launch_delay_us > 0:
        meaning = "median from the end of the launching call to the start"
        yield Evidence("launch_delay_us", seen.launch_delay_us, "us", meaning)


def _flags(kernel: SeenKernel, sm_count: int | None) -> tuple[Flag, ...]:
    blocks = kernel.profile.metrics.get("grid_size")
    small = blocks is not None and sm_count is not None and blocks < sm_count
    return (Flag.SMALL_GRID,) if small else ()


def _grid(flags: tuple[Flag, ...], kernel: SeenKernel, sm_count: int | None) -> Iterator[Evidence]:
    if Flag.SMALL_GRID in flags and sm_count:
        blocks = kernel.profile.metrics["grid_size"]
        yield Evidence("blocks_per_sm", blocks / sm_count, "blocks", "fewer blocks than SMs", 1.0)


def _headroom(
    kernel: SeenKernel, duration_us: float, floor: Floor | None
) -> tuple[Headroom | None, tuple[Evidence, ...]]:
    """The kernel's time over that of its operators' floors, all launches together; and that floor,
    with what it means where the kernel is faster."""
    if floor is None or not kernel.traffics:
        return None, ()
    least = 0.0
    for traffic, count in kernel.traffics:
        time = floor(traffic, Regime.IN_SITU)
        if time is None or time <= 0:
            return None, ()
        least += time * count
    value = duration_us * kernel.profile.launches / least
    meaning = "what the operator takes on this machine by its calibration, mean over the launches"
    if value < NOTICEABLY_FASTER:
        meaning += (
            "; the kernel is faster than the calibrated one, so the floor is not its bound (the "
            "peak is too low, or caches held some of the bytes)"
        )
    number = Evidence("floor_us", least / kernel.profile.launches, "us", meaning)
    return Headroom(value, "compulsory"), (number,)


def _advice(limiter: Limiter, kernel: SeenKernel) -> tuple[str, ...]:
    if limiter is Limiter.UNCLASSIFIED:
        return (COUNTERS_ADVICE,)
    if limiter is Limiter.LAUNCH_BOUND:
        return (launch_advice(kernel.seen.launches_in_graph, kernel.profile.launches),)
    return (LIMITER_ADVICE[limiter], ESTIMATE_ADVICE)
