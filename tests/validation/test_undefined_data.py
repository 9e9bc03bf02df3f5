"""Data that a problem is not defined for, or that merges what it ranks, is not asked about."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from judged_problems import PROBLEMS, Problem, normal, sizes  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from trying import tried  # noqa: E402

from kernel_compass.validation.cheat_parts import FunctionRunner  # noqa: E402

TIMES = 5
TEMPERATURE = 0.7
CHOSEN = 4


def with_uniforms(w, g):
    u = torch.rand(w["m"], w["n"], generator=g, device=g.device)
    return {"x": 2.0 * normal(g, w["m"], w["n"]), "u": u.clamp(1e-6, 1.0 - 1e-6)}


def sampled(x, u):
    """A uniform number above 1 has no logarithm of its logarithm."""
    return (x / TEMPERATURE - torch.log(-torch.log(u))).argmax(-1)


def sampled_by_a_race(x, u):
    return (torch.softmax(x / TEMPERATURE, -1) / -torch.log(u)).argmax(-1)


def sampled_hotter(x, u):
    return (x / (1.2 * TEMPERATURE) - torch.log(-torch.log(u))).argmax(-1)


def logits(w, g):
    return {"x": normal(g, w["m"], w["n"])}


def gated(x):
    """Softmax, then the largest: with logits 65536 times as large all but one are 0."""
    p, at = torch.sort(torch.softmax(x, -1), dim=-1, descending=True, stable=True)
    return p[:, :CHOSEN] / p[:, :CHOSEN].sum(-1, keepdim=True), at[:, :CHOSEN]


def gated_by_logits(x):
    top, at = torch.topk(x, CHOSEN, -1)
    return torch.softmax(top, -1), at


def gated_in_short(x):
    at = torch.topk(x.bfloat16(), CHOSEN, -1).indices
    return torch.softmax(x.gather(1, at), -1), at


def with_a_residual(w, g):
    def short():
        return normal(g, w["m"], w["n"]).bfloat16()

    return {"x": short(), "residual": short()}


def added_and_normed(x, residual):
    both = x + residual
    return F.layer_norm(both, both.shape[-1:]), both


def added_and_normed_wide(x, residual):
    return tuple(one.bfloat16() for one in added_and_normed(x.float(), residual.float()))


def normed_as_stored(x, residual):
    """The sum is stored in 16 bits, and what was stored is normalized."""
    both = x + residual
    off = both.float() - both.float().mean(-1, keepdim=True)
    variance = off.square().mean(-1, keepdim=True)
    return (off * torch.rsqrt(variance + 1e-5)).bfloat16(), both


def normed_by_sums_in_short(x, residual):
    both = x + residual
    total = torch.zeros(len(x), 1, dtype=torch.bfloat16)
    for column in both.split(1, -1):
        total += column
    off = both.float() - total.float() / x.shape[-1]
    variance = off.square().mean(-1, keepdim=True)
    return (off * torch.rsqrt(variance + 1e-5)).bfloat16(), both


CASES = {
    "sampling": Problem(with_uniforms, sampled, sampled, sizes(m=(24,), n=(96,))),
    "gating": Problem(logits, gated, gated, sizes(m=(24,), n=(32,))),
    "residual": Problem(
        with_a_residual, added_and_normed, added_and_normed_wide, sizes(m=(12,), n=(160,))
    ),
}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    for name, problem in CASES.items():
        monkeypatch.setitem(PROBLEMS, name, problem)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sampling", sampled_by_a_race),
        ("gating", gated_by_logits),
        ("residual", normed_as_stored),
    ],
)
def test_who_is_right_where_it_is_defined_passes(name, function):
    for _ in range(TIMES):
        said = tried(name, lambda: FunctionRunner(function))
        assert said.reason is None, said.detail


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sampling", sampled_hotter),
        ("gating", gated_in_short),
        ("residual", normed_by_sums_in_short),
    ],
)
def test_who_is_wrong_there_is_found(name, function):
    for _ in range(TIMES):
        said = tried(name, lambda: FunctionRunner(function))
        assert said.reason is not None


LOW, BINS = -3.0, 24


def at_edges(w, g):
    """Many values within rounding of an edge of a bin: x - LOW rounds to it, or does not."""
    x = normal(g, w["n"])
    edges = LOW + 0.25 * torch.arange(1, BINS, device=x.device)
    x[: BINS - 1] = edges.double().float() - 2.0**-25 * torch.arange(1, BINS, device=x.device)
    x[BINS - 1 : 2 * BINS - 2] = 1e-8 * torch.arange(1, BINS, device=x.device) - 1.2e-7
    return {"x": x}


def histogram(x):
    place = ((x - LOW) * 4.0).floor().clamp(0, BINS - 1).long()
    return torch.bincount(place, minlength=BINS)


def histogram_one_hot(x):
    """The same product, its sum another way round."""
    place = (4.0 * x - 4.0 * LOW).floor().clamp(0, BINS - 1)
    return (place[:, None] == torch.arange(BINS)).sum(0)


def histogram_without_the_last(x):
    return histogram(x[:-1])


def test_whole_numbers_that_the_baselines_own_rounding_decides(monkeypatch):
    problem = Problem(at_edges, histogram, histogram, sizes(n=(400,)))
    monkeypatch.setitem(PROBLEMS, "histogram", problem)
    for _ in range(TIMES):
        said = tried("histogram", lambda: FunctionRunner(histogram_one_hot))
        assert said.reason is None, said.detail
    said = tried("histogram", lambda: FunctionRunner(histogram_without_the_last))
    assert said.reason is not None
