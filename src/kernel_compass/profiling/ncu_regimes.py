"""Which runs of ncu a regime needs, and how their captures become one profile.

`cold` flushes the caches before every pass. `warm` leaves them: with kernel replay each pass
finds what the kernel's own previous pass left (measured on an H200: a bmm whose 16.8 MB of
weights 200 MB of other traffic had evicted reads 1.4 MB from DRAM under a multi-pass list).

`in_situ` must see what the program left, so where the bytes came from is counted in a run of its
own, in one pass (the launch runs once, nothing is restored; the same bmm: 16.8 MB). Everything
else (pipes, stalls, occupancy) comes from the run that `warm` uses, rates scaled to the in-situ
duration. Where a GPU needs more than
one pass for that short list, the program is repeated instead of the kernel (application replay),
which takes a run per pass and a program that does the same every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernel_compass.errors import UsageError
from kernel_compass.profiling.device_probe import MetricChoice
from kernel_compass.profiling.ncu_command import RunSpec
from kernel_compass.records.metrics import PIPES, pipe_key
from kernel_compass.records.profile import KernelProfile, Profile, Regime

STATE_KEYS = frozenset(
    (
        *("dram_bytes_read", "dram_bytes_written", "dram_bytes", "dram_bytes_per_second"),
        *("dram_throughput_pct", "l2_bytes_read", "l2_hit_rate_pct", "l2_fabric_bytes"),
        *("l2_read_sectors_hit", "l2_read_sectors_missed"),
    )
)
"""Metrics that depend on what the caches hold; in situ they come from the residency run alone."""

RATE_KEYS = frozenset(
    (
        *("sm_throughput_pct", "l2_throughput_pct", "l1_throughput_pct", "lsu_data_stage_pct"),
        *("l2_atomic_unit_pct", "issue_active_pct", *(pipe_key(pipe) for pipe in PIPES)),
    )
)
"""Work over time: the work is the same in every regime, so in situ these scale with the time."""

_KernelKey = tuple[tuple[object, ...], int | None, int]
"""Name, grid and block; device; which of those it is: of single launches there are several."""


@dataclass(frozen=True)
class RegimePlan:
    """The runs for one regime. Plans share equal runs: each is made once."""

    regime: Regime
    base: RunSpec
    residency: RunSpec | None = None
    """A run whose cache metrics replace those of `base`."""
    fallback: RunSpec | None = None
    """Replaces `residency` where that took more than one pass."""


def plan(regimes: Sequence[Regime], metrics: MetricChoice) -> tuple[RegimePlan, ...]:
    """The runs for the regimes, in their order.

    Raises:
        UsageError: no regime, or one that cannot be measured.
    """
    if not regimes or Regime.UNKNOWN in regimes:
        raise UsageError("A regime to profile is needed.", "Choose warm, cold or in_situ.")
    rest = "warm" if Regime.WARM in regimes else "in_situ_rest"
    cold = RunSpec("cold", "all", "kernel", metrics.full)
    warm = RunSpec(rest, "none", "kernel", metrics.full)
    plans = {
        Regime.COLD: RegimePlan(Regime.COLD, cold),
        Regime.WARM: RegimePlan(Regime.WARM, warm),
        Regime.IN_SITU: RegimePlan(Regime.IN_SITU, warm, *_in_situ_runs(metrics)),
    }
    return tuple(plans[regime] for regime in dict.fromkeys(regimes))


def _in_situ_runs(metrics: MetricChoice) -> tuple[RunSpec, RunSpec]:
    """How `in_situ` is counted: the run to try, and the run to make where that is no use."""
    return (
        RunSpec("in_situ", "none", "kernel", (*metrics.one_pass, "profiler__replayer_passes")),
        RunSpec("in_situ_application", "none", "application", metrics.residency),
    )


def took_one_pass(capture: Profile) -> bool:
    """Whether every launch of a capture ran once, so that no pass saw another's caches."""
    passes = [k.metrics["replay_passes"] for k in capture.kernels if "replay_passes" in k.metrics]
    return bool(passes) and max(passes) <= 1.0


def replay_mode_text(base: RunSpec, residency: RunSpec | None) -> str:
    """`kernel`, or for two runs `kernel-one-pass+kernel` or `application+kernel`."""
    if residency is None:
        return base.replay_mode
    kind = "kernel-one-pass" if residency.replay_mode == "kernel" else residency.replay_mode
    return f"{kind}+{base.replay_mode}"


def overlaid(base: Profile, residency: Profile) -> Profile:
    """A profile with the durations and cache metrics of `residency` and the rest of `base`."""
    known, counted = _by_key(base.kernels), _by_key(residency.kernels)
    matched = known.keys() & counted.keys()
    kernels = [_overlaid(kernel, counted.get(key)) for key, kernel in known.items()]
    kernels += [kernel for key, kernel in counted.items() if key not in matched]
    return replace(
        base,
        kernels=tuple(kernels),
        device=base.device or residency.device,
        warnings=tuple(
            dict.fromkeys((*base.warnings, *residency.warnings, *_differences(known, counted)))
        ),
    )


def _by_key(kernels: Sequence[KernelProfile]) -> dict[_KernelKey, KernelProfile]:
    """By what they have in common in two runs; launches of one kernel are told by their order."""
    found: dict[_KernelKey, KernelProfile] = {}
    seen: dict[tuple[object, ...], int] = {}
    for kernel in kernels:
        of = (kernel.identity, kernel.device)
        seen[of] = seen.get(of, -1) + 1
        found[(*of, seen[of])] = kernel
    return found


def _overlaid(kernel: KernelProfile, counted: KernelProfile | None) -> KernelProfile:
    kept = {key: v for key, v in kernel.metrics.items() if key not in STATE_KEYS}
    if counted is None:
        return replace(kernel, metrics=kept)
    state = {key: v for key, v in counted.metrics.items() if key in STATE_KEYS}
    kept |= _rescaled(kept, kernel, counted)
    busiest = [m["memory_throughput_pct"] for m in (kept,) if "memory_throughput_pct" in m]
    if busiest and "dram_throughput_pct" in state:  # by definition at least that of DRAM
        kept["memory_throughput_pct"] = max(*busiest, state["dram_throughput_pct"])
    return replace(
        kernel,
        metrics={**kept, **state},
        launches=counted.launches,
        duration_stats=counted.duration_stats or kernel.duration_stats,
    )


def _rescaled(
    metrics: Mapping[str, float], base: KernelProfile, counted: KernelProfile
) -> dict[str, float]:
    """Rates of the base run as they are over the duration that was counted in situ."""
    if base.duration_stats is None or counted.duration_stats is None:
        return {}
    if counted.duration_stats.mean <= 0:
        return {}
    ratio = base.duration_stats.mean / counted.duration_stats.mean
    return {key: metrics[key] * ratio for key in RATE_KEYS & metrics.keys()}


def _differences(
    base: Mapping[_KernelKey, KernelProfile], residency: Mapping[_KernelKey, KernelProfile]
) -> Iterable[str]:
    lacking = [kernel.name for key, kernel in base.items() if key not in residency]
    extra = [kernel.name for key, kernel in residency.items() if key not in base]
    if lacking:
        yield (
            f"in_situ: where the bytes came from is not known for {len(lacking)} kernels that "
            f"one of the two runs did not launch, such as {lacking[0]}."
        )
    if extra:
        yield (
            f"in_situ: {len(extra)} kernels ran in the residency run alone, such as {extra[0]}; "
            "they have no pipe and stall metrics."
        )
    both = base.keys() & residency.keys()
    if any(base[key].launches != residency[key].launches for key in both):
        yield "in_situ: the two runs launched some kernels a different number of times."
