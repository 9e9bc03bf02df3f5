"""A judgement as JSON, and what it says of the process that judged."""

from __future__ import annotations

import json
from math import inf, nan

import pytest

from kernel_compass.api.judging import judgement_fields, spent_by
from kernel_compass.records.trial import Reason
from kernel_compass.validation.judge_contracts import Judgement


@pytest.mark.parametrize("error", [inf, nan])
def test_an_error_that_is_no_number_is_said_as_none(error):
    found = Judgement(Reason.WRONG_RESULT, "off", fidelity_error_pct=error, format_error_pct=1.5)
    fields = json.loads(json.dumps(judgement_fields(found), allow_nan=False))
    assert fields["fidelity_error_pct"] is None
    assert fields["format_error_pct"] == 1.5
    assert fields["reason"] == "wrong_result"


@pytest.mark.parametrize(
    ("reason", "is_spent"),
    [
        (None, False),
        (Reason.WRONG_RESULT, False),
        (Reason.OVER_BUDGET, False),
        (Reason.PATCHED, True),
        (Reason.CHANGES_STATE, True),
        (Reason.WRITES_OUTSIDE, True),
    ],
)
def test_a_process_that_was_meddled_with_is_spent(reason, is_spent):
    said = spent_by(Judgement(reason, "why"))
    assert bool(said) is is_spent
    assert all(reason.value in text for text in said.values())
