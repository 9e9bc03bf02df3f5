"""What a study of a product leaves a step to choose from."""

from __future__ import annotations

import pytest

from kernel_compass.optimizer.product_choices import product_found
from kernel_compass.records.comparison import Interval
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import (
    Action,
    Candidate,
    Outcome,
    Proposal,
    Reason,
    RegimeResult,
    Trial,
)


def trial(number, number_format, error, cold, warm, reason=None, outcome=Outcome.SCREENED):
    results = tuple(
        RegimeResult(regime, 10.0, 10.0 / x, Interval(x, x - 0.02, x + 0.02, 0.95), False)
        for regime, x in ((Regime.COLD, cold), (Regime.WARM, warm))
    )
    candidate = Candidate("own_decode", {"number": number}, number_format)
    proposal = Proposal(candidate, Action.PRECISION, "", "search", (), None)
    return Trial(number, "linear", proposal, outcome, reason, "", results, 0.1, error, number << 20)


def test_the_fastest_of_each_smaller_error_follows_what_was_accepted():
    best = trial(9, "w4a16_g128", 11.0, 2.4, 2.0, outcome=Outcome.ACCEPTED)
    trials = [
        trial(1, "w8a16_fp8", 2.6, 1.7, 1.5),
        trial(2, "w8a16_fp8", 2.59, 1.8, 1.4),  # less in the regime where it is least
        trial(3, "w8a16_int8", 0.9, 1.6, 1.45),
        trial(4, "w8a8_int8", 1.2, 1.5, 1.3),  # slower than what errs less
        trial(5, "bf16", 0.17, 1.1, 1.05),
        trial(6, "fp16", 0.02, 0.99, 1.2),  # slower than the product
        trial(7, "w8a16_fp8", 2.6, 3.0, 3.0, Reason.SIDE_STREAM, Outcome.REJECTED),
        trial(8, "w8a16_int8", 0.9, 3.0, 3.0, Reason.HOLD_OUT, Outcome.REJECTED),
        best,
    ]
    found = product_found("study-p", best, trials)
    assert [one.candidate.config["number"] for one in found.choices] == [9, 1, 3, 5]
    assert [one.added_bytes for one in found.choices] == [9 << 20, 1 << 20, 3 << 20, 5 << 20]
    assert found.choices[2].speedups["warm"].estimate == pytest.approx(1.45)


def test_what_was_confirmed_and_outdone_is_a_choice():
    best = trial(2, "w8a16_fp8", 2.6, 1.8, 1.8, outcome=Outcome.ACCEPTED)
    outdone = trial(1, "bf16", 0.17, 1.2, 1.2, Reason.OUTDONE, Outcome.REJECTED)
    found = product_found("study-p", best, [outdone, best])
    assert [one.candidate.format for one in found.choices] == ["w8a16_fp8", "bf16"]


def test_nothing_errs_less_than_the_product_itself():
    best = trial(1, "bf16", 0.17, 1.2, 1.2, outcome=Outcome.ACCEPTED)
    again = trial(2, "bf16", 0.168, 1.1, 1.1)
    assert product_found("study-p", best, [best, again]).finer == ()
