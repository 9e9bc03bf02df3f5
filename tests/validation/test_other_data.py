"""Inputs that a problem does not draw: far from zero, large, small; who is right with them.

Each kernel is right for the inputs that its problem draws.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from judged_problems import PROBLEMS, Problem, normal, sizes  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from trying import tried  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner  # noqa: E402
from kernel_compass.validation.in_place import is_data  # noqa: E402


def one_pass_moments(x):
    mean = x.mean(-1)
    return [mean, (x * x).mean(-1) - mean * mean]


def one_pass_group_norm(x):
    rows = x.reshape(x.shape[0], 4, -1)
    mean = rows.mean(-1, keepdim=True)
    variance = (rows * rows).mean(-1, keepdim=True) - mean * mean
    return ((rows - mean) * torch.rsqrt(variance + 1e-5)).reshape(x.shape)


def two_pass_group_norm(x):
    rows = x.reshape(x.shape[0], 4, -1)
    off = rows - rows.mean(-1, keepdim=True)
    variance = off.square().mean(-1, keepdim=True)
    return (off * torch.rsqrt(variance + 1e-5)).reshape(x.shape)


def half_precision(x, w, b):
    return F.gelu(F.linear(x.half(), w.half()).float() + b)


def sum_in_half(x):
    return x.half().float().sum(-1)


def clipped_gelu(x):
    return F.gelu(x.clamp(-30.0, 30.0))


def flushes_small(x):
    return torch.where(x.abs() < 1e-4, torch.zeros_like(x), torch.tanh(x))


def of_problem(name, function):
    return tried(name, lambda: FunctionRunner(function))


@pytest.mark.parametrize(
    ("problem", "function", "reasons"),
    [
        ("mean_and_variance", one_pass_moments, {Reason.WRONG_ELSEWHERE}),
        ("group_norm", one_pass_group_norm, {Reason.WRONG_ELSEWHERE}),
        ("gelu", clipped_gelu, {Reason.WRONG_ELSEWHERE}),
        ("linear", half_precision, {Reason.LOW_PRECISION, Reason.WRONG_RESULT}),
        ("row_sum", sum_in_half, {Reason.LOW_PRECISION, Reason.WRONG_RESULT}),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_is_wrong_with_other_data_is_found(problem, function, reasons):
    said = of_problem(problem, function)
    assert said.reason in reasons, said.detail


def test_what_flushes_small_numbers_is_found():
    said = of_problem("sometimes_empty", flushes_small)
    assert said.reason is Reason.WRONG_ELSEWHERE
    assert "as large" in said.detail


def test_a_stable_kernel_passes_where_one_pass_does_not():
    for _ in range(3):
        assert of_problem("group_norm", two_pass_group_norm).reason is None


def with_a_mask(w, g):
    mask = (torch.rand(w["m"], w["n"], generator=g) < 0.5).float()
    return {"x": normal(g, w["m"], w["n"]), "mask": mask}


def masked(x, mask):
    return x * mask


def test_a_mask_stays_a_mask(monkeypatch):
    """It is multiplied by, or looked at: the same as long as it is one."""
    problem = Problem(with_a_mask, masked, masked, sizes(m=(8,), n=(40,)))
    monkeypatch.setitem(PROBLEMS, "by_mask", problem)
    kept = with_a_mask({"m": 8, "n": 40}, torch.Generator().manual_seed(1))
    assert not is_data(torch, kept["mask"])
    assert is_data(torch, kept["x"])
    said = of_problem("by_mask", lambda x, mask: torch.where(mask > 0.5, x, x * 0.0))
    assert said.reason is None, said.detail


def of_two_products(w, g):
    return {"x": normal(g, w["m"], w["n"]), "w": normal(g, w["n"], w["n"])}


def sharp_choice(x, w):
    return torch.softmax((x @ w) @ w.t(), -1)


def test_data_that_rounding_decides_is_not_asked_about(monkeypatch):
    """With larger inputs the softmax is so sharp that it chooses between two."""
    problem = Problem(of_two_products, sharp_choice, sharp_choice, sizes(m=(16,), n=(24,)))
    monkeypatch.setitem(PROBLEMS, "sharp_choice", problem)
    other_order = torch.arange(23, -1, -1)
    for _ in range(3):
        said = of_problem(
            "sharp_choice",
            lambda x, w: torch.softmax((x[:, other_order] @ w[other_order]) @ w.t(), -1),
        )
        assert said.reason is None, said.detail


def with_a_near_tie(w, g):
    """Times 65536, the first row's two largest are 5.3 apart: all of a column is 1/200."""
    x = normal(g, w["m"], w["n"])
    x[0, 5], x[:, 25] = 6.0, -6.0
    x[0, 25] = 6.0 - 8.1e-5
    return {"x": x}


def softmax(x):
    return torch.softmax(x, -1)


def softmax_base_two(x):
    """The product with log2(e) is rounded: 0.03 of 567,000."""
    y = x * 1.4426950408889634
    e = torch.exp2(y - y.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def softmax_without_the_close(x):
    top = x.amax(-1, keepdim=True)
    far = (x > top - 7.0) & (x < top) & (top > 1e5)
    return torch.softmax(torch.where(far, -INF, x), -1)


INF = float("inf")


def test_a_near_tie_that_is_all_of_a_slice_is_what_rounding_makes_of_it(monkeypatch):
    problem = Problem(with_a_near_tie, softmax, softmax, sizes(m=(12,), n=(48,)))
    monkeypatch.setitem(PROBLEMS, "near_tie", problem)
    for _ in range(3):
        said = of_problem("near_tie", softmax_base_two)
        assert said.reason is None, said.detail
    said = of_problem("near_tie", softmax_without_the_close)
    assert said.reason is Reason.WRONG_ELSEWHERE
    assert "65536 times as large" in said.detail
