"""Weights that are one number before training: who forgets them is wrong, under whatever name."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from api.problem_samples import written  # noqa: E402

from kernel_compass.api import problems  # noqa: E402
from kernel_compass.records.trial import Candidate  # noqa: E402
from kernel_compass.validation.judge import judge  # noqa: E402
from kernel_compass.validation.judge_contracts import Effort  # noqa: E402
from kernel_compass.validation.machines import CpuMachine  # noqa: E402
from kernel_compass.validation.watch import Watch  # noqa: E402

QUICK = Effort(seeds=2, repeats=8, repeat_s=0.1, later=40, settle_s=0.001)

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.bn = nn.BatchNorm1d(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(torch.relu(self.bn(self.linear(x))))


def get_inputs():
    return [torch.randn(24, 32)]


def get_init_inputs():
    return [32]
"""

NEW = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.after, self.at = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = x @ self.linear.weight.t() + self.linear.bias
        {normed}
        y = torch.clamp_min(y, 0.0)
        off = y - y.mean(-1, keepdim=True)
        off = off * torch.rsqrt(off.square().mean(-1, keepdim=True) + 1e-5)
        return {scaled}
"""
NORMED = (
    "y = (y - self.running_mean) * torch.rsqrt(self.running_var + 1e-5) * self.scale + self.shift"
)
SCALED = "off * self.after + self.at"


def said(tmp_path, normed, scaled):
    source = problems.problem_source(str(written(tmp_path, MODEL)))
    text = NEW.format(normed=normed, scaled=scaled)
    candidate = Candidate("ModelNew", source=str(written(tmp_path, text, "new.py")))
    watch = Watch(torch)
    workload = problems.load_source(torch, source, "cpu").description.workloads[0]
    problem, build, _ = problems.judged(torch, source, workload, candidate, "cpu")
    return judge(torch, problem, workload, build, CpuMachine(torch), watch, QUICK)


def test_who_uses_them_under_names_of_its_own_passes(tmp_path):
    for _ in range(3):
        found = said(tmp_path, NORMED, SCALED)
        assert found.reason is None, found.detail


@pytest.mark.parametrize(
    ("normed", "scaled"),
    [
        (NORMED.replace(" - self.running_mean", ""), SCALED),
        (NORMED.replace("self.running_var", "1.0"), SCALED),
        (NORMED.replace(" * self.scale", ""), SCALED),
        (NORMED.replace(" + self.shift", ""), SCALED),
        (NORMED, "off * self.after"),
        (NORMED, "off + self.at"),
    ],
)
def test_who_forgets_one_is_found(tmp_path, normed, scaled):
    assert said(tmp_path, normed, scaled).reason is not None
