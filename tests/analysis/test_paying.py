"""The verdict logic alone: bands and floors against each other."""

from __future__ import annotations

import pytest

from kernel_compass.analysis.paying import Contender, Ruling, in_situ, ruling
from kernel_compass.records.advice import CacheFit, Estimate, FloorEstimate, Verdict
from kernel_compass.records.calibration import Basis
from kernel_compass.records.profile import Regime


def contender(floor_us, time_us, low_us, high_us, fit=CacheFit.FITS, bound="l2") -> Contender:
    floor = FloorEstimate(floor_us, None, bound, Basis.MEASURED)
    return Contender(floor, Estimate(time_us, low_us, high_us, bound), fit)


BF16 = contender(4.0, 5.0, 4.2, 6.0)


def test_even_the_floor_is_not_faster() -> None:
    found = ruling(contender(4.15, 6.0, 4.5, 9.0), BF16, Regime.WARM)
    assert found.verdict is Verdict.CANNOT_PAY
    assert "weights already in L2" in found.reason


def test_a_difference_under_the_minimum_effect_is_none() -> None:
    assert ruling(contender(4.19, 5, 5, 6), BF16, Regime.WARM).verdict is Verdict.CANNOT_PAY
    assert ruling(contender(4.05, 5, 5, 6), BF16, Regime.WARM).verdict is Verdict.CANNOT_TELL


def test_the_slow_end_beats_the_fast_end() -> None:
    found = ruling(contender(2.0, 3.0, 2.2, 4.0), BF16, Regime.COLD)
    assert found.verdict is Verdict.PAYS
    assert found.at_most == pytest.approx(2.5)
    assert ruling(contender(2.0, 3.0, 2.2, 4.15), BF16, Regime.COLD).verdict is Verdict.CANNOT_TELL


def test_overlapping_bands_need_a_probe_and_say_what_could_be_won() -> None:
    found = ruling(contender(2.5, 4.0, 2.8, 7.0), BF16, Regime.WARM)
    assert found.verdict is Verdict.CANNOT_TELL
    assert "at most 2.00x, 1.25x by the estimates" in found.reason
    assert "2.80 us to 7.00 us" in found.reason


def test_a_bf16_band_below_its_own_floor_does_not_forbid() -> None:
    """Only a bf16 kernel at its floor is a good one, however low its band reaches."""
    wide = contender(4.0, 5.0, 2.0, 12.0)
    assert ruling(contender(3.0, 4.0, 2.0, 9.0), wide, Regime.WARM).verdict is Verdict.CANNOT_TELL


def test_nothing_known_is_nothing_said() -> None:
    empty = Contender(None, None, CacheFit.UNKNOWN)
    assert ruling(empty, BF16, Regime.WARM).verdict is Verdict.CANNOT_TELL
    assert ruling(BF16, empty, Regime.WARM).at_most is None


@pytest.mark.parametrize(
    ("candidate", "baseline", "regime", "words"),
    [
        (contender(3, 4, 3, 5), BF16, Regime.COLD, "weights come from DRAM"),
        (contender(3, 4, 3, 5, bound="launch"), BF16, Regime.WARM, "the launch itself"),
        (contender(3, 4, 3, 5, bound="compute"), BF16, Regime.WARM, "arithmetic bounds it"),
        (
            contender(3, 4, 3, 5),
            contender(9, 10, 9, 12, CacheFit.SPILLS),
            Regime.WARM,
            "fits into L2 where bf16 does not",
        ),
        (
            contender(3, 4, 3, 5, CacheFit.EDGE),
            contender(9, 10, 9, 12, CacheFit.SPILLS),
            Regime.WARM,
            "at the edge of L2",
        ),
    ],
)
def test_the_reason_says_what_decides(candidate, baseline, regime, words: str) -> None:
    assert words in ruling(candidate, baseline, regime).reason


def test_in_situ_is_sure_only_where_both_ends_agree() -> None:
    pays, cannot = Ruling(Verdict.PAYS, 2.0, "a"), Ruling(Verdict.CANNOT_PAY, 1.0, "b")
    assert in_situ(pays, pays).verdict is Verdict.PAYS
    mixed = in_situ(cannot, pays)
    assert mixed.verdict is Verdict.CANNOT_TELL
    assert mixed.at_most == 2.0
    assert "cannot pay where the weights stay in L2 and pays where they come from DRAM" in (
        mixed.reason
    )


def test_in_situ_says_one_number() -> None:
    """The most that can be won in the column is the one in the sentence, whichever end it is."""
    warm = Ruling(Verdict.CANNOT_TELL, 2.0, "weights already in L2: at most 2.00x")
    cold = Ruling(Verdict.CANNOT_TELL, 1.93, "weights come from DRAM: at most 1.93x")
    for ends in ((warm, cold), (cold, warm)):
        found = in_situ(*ends)
        assert f"at most {found.at_most:.2f}x" in found.reason
    assert "most where warm" in in_situ(warm, cold).reason
    nothing = Ruling(Verdict.CANNOT_TELL, None, "the calibration does not say enough")
    assert in_situ(nothing, nothing).at_most is None
