"""A replay for people, and as JSON: which claims hold, in which regime, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kernel_compass.records.comparison import ComparisonResult, Interval
from kernel_compass.records.environment import Environment
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Reason, Trial
from kernel_compass.report.phrases import count_text, plain
from kernel_compass.units import percent_text


class RegimeClaim(Protocol):
    """What is shown of one regime."""

    @property
    def regime(self) -> Regime:
        """Which."""

    @property
    def asked(self) -> bool:
        """Whether it had to win there."""

    @property
    def claimed(self) -> Interval | None:
        """The study's."""

    @property
    def found(self) -> ComparisonResult:
        """Now."""


class Claim(Protocol):
    """What is shown of a claim."""

    @property
    def trial(self) -> Trial:
        """As it was accepted."""

    @property
    def holds(self) -> bool:
        """Whether it does."""

    @property
    def reason(self) -> Reason | None:
        """Why not."""

    @property
    def detail(self) -> str:
        """In a sentence."""

    @property
    def regimes(self) -> Sequence[RegimeClaim]:
        """Each."""


class Replay(Protocol):
    """What is shown."""

    @property
    def study(self) -> str:
        """Its name."""

    @property
    def before(self) -> Environment:
        """Where it ran."""

    @property
    def now(self) -> Environment | None:
        """Where it was replayed."""

    @property
    def claims(self) -> Sequence[Claim]:
        """All."""

    @property
    def seed(self) -> int:
        """Of operands and placement."""

    @property
    def timed(self) -> int:
        """Claims that were timed."""

    @property
    def alpha(self) -> float:
        """What they share."""


def replay_text(replay: Replay) -> str:
    """Every claim with its regimes, then how many hold."""
    was = plain(replay.before.device.name or "an unknown device")
    is_now = plain(replay.now.device.name or "an unknown device") if replay.now else None
    where = f" on {was}" if is_now in (None, was) else f" on {was}, replayed on {is_now}"
    lines = [f"{replay.study}: {count_text(len(replay.claims), 'accepted claim')}{where}"]
    for one in replay.claims:
        candidate = one.trial.proposal.candidate
        name = plain(" ".join(filter(None, (candidate.implementation, candidate.format))))
        lines.append(f"{'holds' if one.holds else 'FAILS'}  {plain(one.trial.workload)}: {name}")
        if not one.holds:
            reason = one.reason.value if one.reason else "rejected"
            lines.append(f"       {reason}: {plain(one.detail)}")
        lines += [f"       {_regime_text(part)}" for part in one.regimes]
    held = sum(one.holds for one in replay.claims)
    if replay.claims:
        lines.append(f"{held} of {len(replay.claims)} hold (seed {replay.seed}).")
        if replay.timed > 1:
            lines.append(
                f"{replay.timed} claims were timed, and any of them is wrong with a chance of at "
                f"most {percent_text(100 * replay.alpha)} (Holm): each interval is as wide as that "
                "takes."
            )
    else:
        lines.append("Nothing was accepted, so there is nothing to replay.")
    return "\n".join(lines) + "\n"


def replay_fields(replay: Replay) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "study": replay.study,
        "seed": replay.seed,
        "holds": all(one.holds for one in replay.claims),
        "studied_on": replay.before.device.name,
        "replayed_on": replay.now.device.name if replay.now else None,
        "correction": {"method": "holm", "claims": replay.timed, "alpha": replay.alpha},
        "claims": [_claim_fields(one) for one in replay.claims],
    }


def _claim_fields(one: Claim) -> dict[str, Any]:
    candidate = one.trial.proposal.candidate
    return {
        "trial": one.trial.number,
        "workload": one.trial.workload,
        "implementation": candidate.implementation,
        "format": candidate.format,
        "config": dict(candidate.config),
        "holds": one.holds,
        "reason": one.reason and one.reason.value,
        "detail": one.detail,
        "regimes": [
            {
                "regime": part.regime.value,
                "asked": part.asked,
                "claimed": None if part.claimed is None else _interval_fields(part.claimed),
                "found": _interval_fields(part.found.speedup),
                "decision": part.found.decision.value,
            }
            for part in one.regimes
        ],
    }


def _interval_fields(one: Interval) -> dict[str, float]:
    return {
        "low": one.low,
        "estimate": one.estimate,
        "high": one.high,
        "confidence": one.confidence,
    }


def _regime_text(part: RegimeClaim) -> str:
    claimed = "nothing claimed" if part.claimed is None else f"claimed {_interval(part.claimed)}"
    need = "has to win" if part.asked else "may not be inferior"
    found = part.found
    return f"{part.regime.value:<5} {_interval(found.speedup)} now, {claimed}; {need}"


def _interval(one: Interval) -> str:
    return f"{one.estimate:.3f}x ({one.low:.3f} to {one.high:.3f})"
