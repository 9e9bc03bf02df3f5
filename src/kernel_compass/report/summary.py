"""Totals of a report: what dominates, and what the regimes cost."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.records.diagnosis import Headroom, Limiter
from kernel_compass.records.profile import LEADING_ORDER, Regime
from kernel_compass.records.report import Report, ReportKernel
from kernel_compass.report.phrases import (
    LIMITER_OUTLOOK,
    TIMELINE_OUTLOOK,
    count_text,
    share_text,
)
from kernel_compass.units import duration_text


@dataclass(frozen=True)
class LimiterTotal:
    """All kernels of one limiter."""

    limiter: Limiter
    kernels: int
    launches: int
    share: float | None
    """Share (0-1) of the time, `None` where one of their durations is missing."""


def regimes_of(report: Report) -> tuple[Regime, ...]:
    """The joined regimes, the leading one first; empty where nothing was joined."""
    if len(report.sources) < 2:
        return ()
    found = {regime for item in report.kernels for regime in item.regimes or ()}
    return tuple(regime for regime in LEADING_ORDER if regime in found)


def limiter_totals(report: Report) -> list[LimiterTotal]:
    """Kernels by limiter, the largest share first."""
    groups: dict[Limiter, list[ReportKernel]] = {}
    for item in report.kernels:
        limiter = item.kernel.diagnosis.limiter if item.kernel.diagnosis else Limiter.UNCLASSIFIED
        groups.setdefault(limiter, []).append(item)
    totals = [
        LimiterTotal(
            limiter=limiter,
            kernels=len(items),
            launches=sum(item.kernel.launches for item in items),
            share=_sum([item.share_of_time for item in items]),
        )
        for limiter, items in groups.items()
    ]
    return sorted(totals, key=lambda t: (-(t.share or 0.0), -t.launches))


def total_text(report: Report) -> str:
    """Kernels, launches and their time in one sentence."""
    if not report.kernels:
        return "No kernels."
    times = [item.kernel.duration_us for item in report.kernels]
    total = _sum(times)
    launches = sum(item.kernel.launches for item in report.kernels)
    counts = f"{count_text(len(times), 'kernel')}, {count_text(launches, 'launch')}"
    if total is None:
        missing = sum(time is None for time in times)
        return f"{counts}; {count_text(missing, 'kernel')} without a duration, so no shares."
    regimes = regimes_of(report)
    where = f" ({regimes[0].value})" if regimes else ""
    return f"{counts}, {duration_text(total)} of GPU time{where}, launch gaps not included."


def dominating_texts(report: Report) -> list[str]:
    """A sentence for each limiter with a tenth of the time or more (or the first)."""
    totals = limiter_totals(report)
    large = [t for i, t in enumerate(totals) if i == 0 or (t.share or 0) >= 0.1]
    return [_limiter_text(t, _outlook(report, t)) for t in large]


def _outlook(report: Report, total: LimiterTotal) -> str:
    """What a limiter's kernels are candidates for, as far as it is not done."""
    if report.timeline is None:
        return LIMITER_OUTLOOK[total.limiter]
    if total.limiter is not Limiter.LAUNCH_BOUND:
        return TIMELINE_OUTLOOK[total.limiter]
    inside = sum(
        item.timeline.launches_in_graph
        for item in report.kernels
        if item.timeline
        and item.kernel.diagnosis
        and item.kernel.diagnosis.limiter is Limiter.LAUNCH_BOUND
    )
    if inside >= total.launches:
        return "fuse them (they run in CUDA graphs already)"
    words = TIMELINE_OUTLOOK[total.limiter]
    return f"{words} ({inside:,} of the launches are in one already)" if inside else words


def also_text(report: Report) -> str:
    """The limiters with less time in one line; empty where there are none."""
    small = [t for i, t in enumerate(limiter_totals(report)) if i and (t.share or 0) < 0.1]
    return f"Also {'; '.join(_counts(t) for t in small)}." if small else ""


def winnable_text(report: Report) -> str:
    """What the kernels could win at their floors, and where most of it is; empty if unknown."""
    known = [
        (item.share_of_time, room, rank)
        for rank, item in enumerate(report.kernels, start=1)
        if item.share_of_time and (room := _headroom(item)) is not None
    ]
    wins = sorted(((s * max(1.0 - 1.0 / r.value, 0.0), rank) for s, r, rank in known), reverse=True)
    total = sum(win for win, _ in wins)
    if total <= 0:
        return ""
    where = ", ".join(f"#{rank} {share_text(win)}" for win, rank in wins[:2] if win > 0)
    silent = len(report.kernels) - len(wins)
    without = f"; {count_text(silent, 'kernel')} without a floor" if silent else ""
    bases = " and ".join(sorted({room.basis for _, room, _ in known}))
    won = f"At their floors ({bases}) the kernels would win {share_text(total)} of the time"
    return f"{won}: {where}{without}."


def _headroom(item: ReportKernel) -> Headroom | None:
    return item.kernel.diagnosis.headroom if item.kernel.diagnosis else None


def has_headroom(report: Report) -> bool:
    """Whether any kernel of the report has one."""
    return any(_headroom(item) is not None for item in report.kernels)


def regime_cost_texts(report: Report) -> list[str]:
    """How much longer the other regimes take, over the kernels that are in both."""
    lead, *others = regimes_of(report) or (Regime.UNKNOWN,)
    texts = []
    for other in others:
        pairs = [pair for item in report.kernels if (pair := _pair(item, lead, other))]
        if pairs:
            ratio = sum(b for _, b in pairs) / sum(a for a, _ in pairs)
            of = count_text(len(pairs), "kernel")
            texts.append(f"{other.value} takes {ratio:.2f}x the time of {lead.value} ({of}).")
    return texts


def _pair(item: ReportKernel, lead: Regime, other: Regime) -> tuple[float, float] | None:
    """Time of the leading regime's launches, and of as many in the other regime."""
    first, second = (item.regimes or {}).get(lead), (item.regimes or {}).get(other)
    if not first or not second or not first.duration_stats or not second.duration_stats:
        return None
    if first.duration_stats.mean <= 0:
        return None
    return (
        first.launches * first.duration_stats.mean,
        first.launches * second.duration_stats.mean,
    )


def _limiter_text(total: LimiterTotal, outlook: str) -> str:
    of_time = "" if total.share is None else " of the time"
    return f"{_counts(total)}{of_time}: {outlook}."


def _counts(total: LimiterTotal) -> str:
    counts = f"{count_text(total.kernels, 'kernel')}, {count_text(total.launches, 'launch')}"
    share = "" if total.share is None else f", {share_text(total.share)}"
    return f"{total.limiter.value}: {counts}{share}"


def _sum(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) if there and len(there) == len(values) else None
