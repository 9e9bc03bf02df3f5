"""Whether a low-bit format can be faster than bf16, and why, in a sentence.

What is compared: the format's floor and the band of a kernel nobody has probed, with those of bf16.

    cannot pay   floor >= good bf16 / 1.02, a good bf16 being no faster than its own floor
    pays         the band's slow end <= the fast end of bf16's band / 1.02
    cannot tell  everything between

`cannot pay` sets floor against floor where the band reaches below, so that an error which both
share (a streaming kernel that was not the best) cancels out. It speaks of a good bf16 kernel: a
bad one can lose to anything, and is better replaced by a good one.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_compass.records.advice import CacheFit, Estimate, FloorEstimate, Verdict
from kernel_compass.records.comparison import MINIMUM_EFFECT
from kernel_compass.records.profile import Regime
from kernel_compass.units import duration_text

MIN_EFFECT = 1 + MINIMUM_EFFECT
"""A difference smaller than this is none."""


@dataclass(frozen=True)
class Contender:
    """One precision in one regime: its floor and the band of an unprobed kernel."""

    floor: FloorEstimate | None
    estimate: Estimate | None
    fit: CacheFit


@dataclass(frozen=True)
class Ruling:
    """A verdict, how much can be won at most, and the sentence that says why."""

    verdict: Verdict
    at_most: float | None
    reason: str


def ruling(candidate: Contender, bf16: Contender, regime: Regime) -> Ruling:
    """Compare one precision with bf16 in one regime (`warm` or `cold`)."""
    if candidate.floor is None or bf16.floor is None or bf16.estimate is None:
        return Ruling(Verdict.CANNOT_TELL, None, "the calibration does not say enough to estimate")
    at_most = bf16.estimate.time_us / candidate.floor.time_us
    good = max(bf16.estimate.low_us, bf16.floor.time_us)
    where = _where(candidate, bf16, regime)
    if candidate.floor.time_us * MIN_EFFECT >= good:
        return Ruling(
            Verdict.CANNOT_PAY,
            at_most,
            f"{where}: even its floor ({duration_text(candidate.floor.time_us)}) does not beat a "
            f"good bf16 kernel ({duration_text(good)})",
        )
    most = f"{where}: at most {at_most:.2f}x"
    if candidate.estimate is None:
        return Ruling(Verdict.CANNOT_TELL, at_most, f"{most}, and there is no estimate for it")
    most += f", {bf16.estimate.time_us / candidate.estimate.time_us:.2f}x by the estimates"
    if candidate.estimate.high_us * MIN_EFFECT <= bf16.estimate.low_us:
        slow = duration_text(candidate.estimate.high_us)
        return Ruling(
            Verdict.PAYS,
            at_most,
            f"{most}; even the slow end of its band ({slow}) beats bf16's fast end "
            f"({duration_text(bf16.estimate.low_us)})",
        )
    words = _overlap(candidate.estimate, candidate.floor.time_us, good)
    return Ruling(Verdict.CANNOT_TELL, at_most, f"{most}; {words}")


def in_situ(warm: Ruling, cold: Ruling) -> Ruling:
    """The ruling where nobody says what the program leaves in L2."""
    known = [r.at_most for r in (warm, cold) if r.at_most is not None]
    at_most = max(known, default=None)
    if warm.verdict is cold.verdict:
        best, name = (warm, "warm") if warm.at_most == at_most else (cold, "cold")
        return Ruling(
            warm.verdict, at_most, f"warm or cold alike, most where {name}: {best.reason}"
        )
    words = {
        Verdict.PAYS: "pays",
        Verdict.CANNOT_PAY: "cannot pay",
        Verdict.CANNOT_TELL: "may pay",
    }
    reason = (
        f"it {words[warm.verdict]} where the weights stay in L2 and {words[cold.verdict]} where "
        f"they come from DRAM: profile in situ to know which"
    )
    return Ruling(Verdict.CANNOT_TELL, at_most, reason)


def _where(candidate: Contender, bf16: Contender, regime: Regime) -> str:
    """What decides, in a clause."""
    bound = candidate.floor.bound if candidate.floor else ""
    if bound == "launch":
        return "the launch itself is half of its floor or more"
    if bound == "compute":
        return "arithmetic bounds it, not bytes"
    if regime is Regime.COLD:
        return "weights come from DRAM"
    return _FITS.get((bf16.fit, candidate.fit), "at the edge of L2")


_FITS = {
    (CacheFit.FITS, CacheFit.FITS): "weights already in L2",
    (CacheFit.EDGE, CacheFit.FITS): "it fits into L2 and bf16 only in part",
    (CacheFit.SPILLS, CacheFit.FITS): "it fits into L2 where bf16 does not",
    (CacheFit.SPILLS, CacheFit.EDGE): "at the edge of L2, where bf16 does not fit",
    (CacheFit.SPILLS, CacheFit.SPILLS): "too large for L2 either way",
    (CacheFit.UNKNOWN, CacheFit.UNKNOWN): "L2's capacity is not calibrated",
}
"""bf16's fit and the format's, re-read."""


def _overlap(estimate: Estimate, floor_us: float, good_us: float) -> str:
    """What a probe must show: how near its floor a kernel has to come."""
    band = f"{duration_text(estimate.low_us)} to {duration_text(estimate.high_us)}"
    enough = good_us / MIN_EFFECT / floor_us
    words = f"pays for a kernel within {enough:.2f}x of its floor"
    if estimate.low_us >= good_us:
        return f"{words}, and one that nobody has tuned takes {band}"
    return f"{words}; the estimate's band is {band}"
