"""Captures -> one report: diagnose, join the regimes of one program, rank by share of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kernel_compass.analysis.bottleneck import diagnose_kernel
from kernel_compass.analysis.launch_verdict import with_timeline
from kernel_compass.analysis.timeline_match import Seen
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis, Flag, Limiter
from kernel_compass.records.profile import (
    LEADING_ORDER,
    Dim3,
    KernelProfile,
    Profile,
    Regime,
    Source,
)
from kernel_compass.records.report import RegimeView, Report, ReportKernel
from kernel_compass.units import duration_text

Identity = tuple[str, Dim3 | None, Dim3 | None, int | None]


def report_one(
    profile: Profile,
    label: str | None = None,
    calibration: Calibration | None = None,
    seen: Seen | None = None,
) -> Report:
    """The report of a single capture; `seen` is what a timeline shows of its kernels."""
    judge = partial(
        diagnose_kernel, source=profile.source, device=profile.device, calibration=calibration
    )
    kernels = [replace(k, diagnosis=decided(k, partial(judge, k), seen)) for k in profile.kernels]
    return Report(
        label=label or profile.label,
        device=profile.device,
        sources=(profile.source,),
        kernels=_ranked([(k, None) for k in kernels]),
        warnings=(
            *profile.warnings,
            *_contradiction(profile.source),
            *_mixed_problems(profile.kernels),
            *foreign_calibration(profile.device, calibration),
        ),
        calibration=calibration.name if calibration else None,
    )


def report_joined(
    profiles: Mapping[Regime, Profile],
    label: str | None = None,
    calibration: Calibration | None = None,
    seen: Seen | None = None,
) -> Report:
    """The report of several regimes of one program; kernels are matched by name, grid and block."""
    ordered = {r: profiles[r] for r in LEADING_ORDER if r in profiles}
    if len(ordered) == 1:
        return report_one(next(iter(ordered.values())), label, calibration, seen)
    by_regime = {r: {(*k.identity, k.device): k for k in p.kernels} for r, p in ordered.items()}
    identities: dict[Identity, None] = {}
    for kernels in by_regime.values():
        identities.update(dict.fromkeys(kernels))
    rows = [_joined_row(identity, ordered, by_regime, calibration, seen) for identity in identities]
    first = next(iter(ordered.values()))
    warnings = [w for p in ordered.values() for w in p.warnings]
    warnings += [w for p in ordered.values() for w in _contradiction(p.source)]
    warnings += _mixed_problems(first.kernels)
    device = _device(list(ordered.values()))
    warnings += foreign_calibration(device, calibration)
    return Report(
        label=label or first.label,
        device=device,
        sources=tuple(p.source for p in ordered.values()),
        kernels=_ranked(rows),
        warnings=tuple(dict.fromkeys(warnings + _unmatched(by_regime))),
        calibration=calibration.name if calibration else None,
    )


def _joined_row(
    identity: Identity,
    ordered: Mapping[Regime, Profile],
    by_regime: Mapping[Regime, Mapping[Identity, KernelProfile]],
    calibration: Calibration | None,
    seen: Seen | None,
) -> tuple[KernelProfile, dict[Regime, RegimeView | None]]:
    cold = by_regime.get(Regime.COLD, {}).get(identity)
    answered = False
    views: dict[Regime, RegimeView | None] = {}
    leading: KernelProfile | None = None
    for regime, profile in ordered.items():  # cold comes after those that can answer for it
        kernel = by_regime[regime].get(identity)
        if kernel is None:
            views[regime] = None
            continue
        judge = partial(
            diagnose_kernel,
            kernel,
            profile.source,
            profile.device,
            flushed=cold if regime is not Regime.COLD else None,
            residency_answered=answered and regime is Regime.COLD,
            calibration=calibration,
        )
        diagnosis = decided(kernel, judge, seen)
        settled = Flag.RESIDENCY_UNKNOWN not in diagnosis.flags
        answered = answered or (regime in (Regime.WARM, Regime.IN_SITU) and settled)
        views[regime] = _view(kernel, diagnosis)
        leading = leading or replace(kernel, diagnosis=diagnosis)
    assert leading is not None
    return leading, views


def decided(kernel: KernelProfile, judge: Callable[..., Diagnosis], seen: Seen | None) -> Diagnosis:
    """What the counters say; of a suspicion of launch_bound, what a timeline makes of it.

    Args:
        kernel: of a capture.
        judge: `diagnose_kernel` of it.
        seen: what a timeline shows of it.
    """
    diagnosis = judge()
    suspected = diagnosis.limiter is Limiter.LAUNCH_BOUND
    evidence = seen(kernel) if seen is not None and suspected else None
    if evidence is None:
        return diagnosis
    return with_timeline(diagnosis, evidence, judge(without=frozenset({Limiter.LAUNCH_BOUND})))


def _view(kernel: KernelProfile, diagnosis: Diagnosis) -> RegimeView:
    return RegimeView(kernel.launches, kernel.duration_stats, kernel.metrics, diagnosis)


def _device(profiles: Sequence[Profile]) -> Device | None:
    return next((p.device for p in profiles if p.device is not None), None)


def foreign_calibration(device: Device | None, calibration: Calibration | None) -> list[str]:
    """A calibration of another GPU, asked for by name."""
    calibrated = calibration.environment.device.name if calibration else None
    if calibrated is None or device is None or device.name in (None, calibrated):
        return []
    return [
        f"headroom is against the calibration of an {calibrated}, the capture is of an "
        f"{device.name}"
    ]


def _contradiction(source: Source) -> list[str]:
    """A capture whose cache control cannot give the regime that it was named for."""
    flushed = source.cache_control == "all"
    if flushed and source.regime in (Regime.WARM, Regime.IN_SITU):
        return [
            f"the capture named {source.regime.value} was taken with --cache-control all: ncu "
            f"flushed the caches before every pass, so its numbers are cold"
        ]
    if source.cache_control == "none" and source.regime is Regime.COLD:
        return [
            "the capture named cold was taken with --cache-control none: ncu flushed nothing, so "
            "its operands may have been in L2"
        ]
    return []


MIXED_RATIO, MIXED_MIN_US = 2.0, 10.0
"""Launches of one grid whose durations differ this much are likely to be different problems."""


def _mixed_problems(kernels: Sequence[KernelProfile]) -> list[str]:
    """Persistent kernels launch the same grid for every size: their means describe none of them."""
    found = []
    for kernel in kernels:
        d = kernel.duration_stats
        if d is not None and d.max >= MIXED_MIN_US and d.max >= MIXED_RATIO * d.min:
            found.append(
                f"{kernel.name}: {kernel.launches} launches with one grid take "
                f"{duration_text(d.min)} to {duration_text(d.max)} each; if they are different "
                f"problems, their means describe none of them"
            )
    return found


def _unmatched(by_regime: Mapping[Regime, Mapping[Identity, KernelProfile]]) -> list[str]:
    everywhere = set.intersection(*(set(kernels) for kernels in by_regime.values()))
    found = []
    for regime, kernels in by_regime.items():
        alone = len(set(kernels) - everywhere)
        if alone:
            found.append(
                f"{alone} kernel(s) of the {regime.value} capture are not in every other capture"
            )
    return found


def _ranked(
    rows: Sequence[tuple[KernelProfile, dict[Regime, RegimeView | None] | None]],
) -> tuple[ReportKernel, ...]:
    """By share of time; kernels without a duration keep their order at the end."""
    times = [k.duration_stats.total if k.duration_stats else None for k, _ in rows]
    total = sum(t for t in times if t is not None)
    complete = None not in times and total > 0
    ranked = [
        ReportKernel(k, (t or 0.0) / total if complete else None, views)
        for (k, views), t in zip(rows, times, strict=True)
    ]
    order = sorted(range(len(ranked)), key=lambda i: -(times[i] or 0.0))
    return tuple(ranked[i] for i in order)
