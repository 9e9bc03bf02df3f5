"""The end-to-end gate on tensors whose errors are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from kernel_compass.records.step_action import OutputError  # noqa: E402
from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.step_outputs import (  # noqa: E402
    OutputBudget,
    compare,
    kept,
    objection,
    rows_of,
    tensors_of,
)


@dataclass
class ModelOutput:
    logits: object
    past: object = None


def names(found):
    return [name for name, _ in tensors_of(found)]


def test_outputs_are_named_as_they_are_reached():
    x = torch.zeros(2, 3)
    assert names(x) == ["output"]
    assert names((x, [x, x])) == ["output[0]", "output[1][0]", "output[1][1]"]
    assert names({"logits": x, "loss": None}) == ["output.logits"]
    assert names(ModelOutput(x, (x,))) == ["output.logits", "output.past[0]"]
    assert names(3) == []


def test_relative_error_is_frobenius_against_numpy():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(64, 33, generator=generator)
    b = a + 0.01 * torch.randn(64, 33, generator=generator)
    (error,), wrong = compare(kept(a), kept(b), False)
    assert wrong is None
    x, y = a.double().numpy(), b.double().numpy()
    expected = 100 * math.sqrt(((x - y) ** 2).sum() / (x**2).sum())
    assert error.relative_pct == pytest.approx(expected)
    assert error.top1_agreement_pct is None and error.kl is None


def test_a_copy_is_kept_not_the_tensor():
    a = torch.ones(4)
    before = kept(a)
    a.zero_()
    (error,), _ = compare(before, kept(torch.ones(4)), False)
    assert error.relative_pct == 0.0


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ((torch.ones(2, 3), torch.ones(1)), Reason.WRONG_SHAPE),
        (torch.ones(3, 2), Reason.WRONG_SHAPE),
        (torch.ones(2, 3, dtype=torch.float64), Reason.WRONG_SHAPE),
        (torch.full((2, 3), math.nan), Reason.NOT_FINITE),
        (torch.full((2, 3), math.inf), Reason.NOT_FINITE),
    ],
)
def test_what_is_wrong_whatever_the_budget(found, reason):
    _, wrong = compare(kept(torch.ones(2, 3)), kept(found), False)
    assert wrong is not None and wrong[0] is reason


def test_infinities_of_a_mask_have_to_stay_and_do_not_count():
    mask = torch.tensor([0.0, -math.inf, 2.0])
    (error,), wrong = compare(kept(mask), kept(mask.clone()), False)
    assert wrong is None and error.relative_pct == 0.0
    _, wrong = compare(kept(mask), kept(torch.tensor([0.0, 1.0, 2.0])), False)
    assert wrong is not None


def test_zeros_are_equal_to_zeros_alone():
    zeros = torch.zeros(5)
    assert compare(kept(zeros), kept(zeros.clone()), False)[1] is None
    assert compare(kept(zeros), kept(zeros + 1), False)[1] is not None


def test_logits_are_compared_as_answers():
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(200, 1000, generator=generator)
    b = a.clone()
    b[:3] = b[:3].roll(1, -1)  # three rows answer something else
    (error,), _ = compare(kept(a), kept(b), integer_inputs=True)
    assert error.top1_agreement_pct == pytest.approx(98.5)
    p, q = a.double().log_softmax(-1), b.double().log_softmax(-1)
    assert error.kl == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()))


def test_what_looks_like_logits():
    wide = torch.randn(4, 1000)
    named = {"logits": torch.randn(4, 10)}
    assert compare(kept(wide), kept(wide), False)[0][0].kl is None
    assert compare(kept(wide), kept(wide), True)[0][0].kl == pytest.approx(0.0)
    assert compare(kept(named), kept(named), False)[0][0].kl == pytest.approx(0.0)


def test_the_budget_decides():
    budget = OutputBudget(1.0, 99.0, 0.02)
    good = OutputError("output", 0.9)
    assert objection([good], budget) is None
    assert objection([good, OutputError("output[1]", 1.1)], budget)[0] is Reason.OVER_BUDGET
    assert objection([OutputError("logits", 0.5, 98.0, 0.001)], budget)[0] is Reason.OVER_BUDGET
    assert objection([OutputError("logits", 0.5, 100.0, 0.03)], budget)[0] is Reason.OVER_BUDGET
    # of 16 rows one may have another largest, two may not
    rows = {"logits": 16}
    assert objection([OutputError("logits", 0.5, 93.75, 0.001)], budget, rows) is None
    assert objection([OutputError("logits", 0.5, 87.5, 0.001)], budget, rows) is not None


def test_rows_are_all_dimensions_but_the_last():
    assert rows_of(kept(torch.zeros(2, 8, 1000))) == {"output": 16}
