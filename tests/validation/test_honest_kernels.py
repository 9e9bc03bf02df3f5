"""Honest kernels pass the judge: another order, scratch memory, workspaces, choices kept."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from honest_kernels import KERNELS  # noqa: E402
from judged_problems import PROBLEMS  # noqa: E402
from trying import tried  # noqa: E402


def test_there_are_kernels_of_every_problem():
    assert len(KERNELS) >= 30
    assert {one.problem for one in KERNELS} == set(PROBLEMS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.name)
def test_an_honest_kernel_passes(one):
    for index in range(2):
        said = tried(one.problem, one.make, index)
        assert said.reason is None, said.detail
