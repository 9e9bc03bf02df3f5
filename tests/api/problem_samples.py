"""Problem files that tests write."""

from __future__ import annotations

from pathlib import Path

PLAIN = """
import torch
WORKLOADS = [{"rows": 33, "width": 64}, {"rows": 1, "width": 100}]
ERROR_BUDGET = 0.03
HELD = ["w"]
STREAMED = ["w"]

def inputs(workload, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator)
    return {"x": normal(workload["rows"], workload["width"]), "w": normal(workload["width"], 48)}

def reference(x, w):
    return torch.softmax(x @ w, -1)

def baseline(x, w):
    return torch.softmax(x @ w, -1)

def by_parts(x, w, parts):
    y = sum(a @ b for a, b in zip(x.chunk(parts, 1), w.chunk(parts, 0)))
    e = torch.exp(y - y.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)

def wrong(x, w):
    return torch.softmax(x @ w * 1.01, -1)

CANDIDATES = {"by_parts": (by_parts, [{"parts": 1}, {"parts": 4}]), "wrong": wrong}
"""
MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.first = nn.Linear(width, 40)
        self.second = nn.Linear(40, classes)
        self.register_buffer("scale", torch.rand(classes))

    def forward(self, x):
        return torch.relu(self.first(x)) @ self.second.weight.t() * self.scale + torch.ones(1)

def get_inputs():
    return [torch.randn(16, 32)]

def get_init_inputs():
    return [32, 10]
"""
NEW = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.first = nn.Linear(width, 40)
        self.second = nn.Linear(40, classes)
        self.register_buffer("scale", torch.rand(classes))

    def forward(self, x):
        hidden = torch.clamp_min(torch.addmm(self.first.bias, x, self.first.weight.t()), 0)
        return torch.addcmul(torch.ones(10), hidden @ self.second.weight.t(), self.scale)
"""


def written(tmp_path: Path, text: str, name: str = "problem.py") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path
