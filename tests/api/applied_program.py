"""A program of a user's, as tests change it: functions, methods, modules, a global cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F

CALLS = []


def norm(x, gain):
    """Many short operators."""
    CALLS.append("norm")
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain


def plain(x, gain):
    wide = x * 2
    return torch.tanh(wide) * gain + torch.sigmoid(wide)


def breaks(x):
    if x.sum().item() > 0:
        return x + 1
    return x - 1


class Gate(torch.nn.Module):
    def __init__(self, size=8):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.w = torch.nn.Parameter(torch.randn(size, size, generator=generator))

    def forward(self, x):
        return torch.tanh(x @ self.w) * torch.sigmoid(x)

    @staticmethod
    def doubled(x):
        return torch.tanh(x) * 2


class Model(torch.nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.layers = torch.nn.ModuleList([Gate(size), Gate(size)])
        self.gain = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return plain(x, self.gain)


class Attends(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)
