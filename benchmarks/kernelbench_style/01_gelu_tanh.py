"""The tanh form of GELU, written out."""

import math

import torch
from torch import nn

batch_size = 4096
dim = 8192


class Model(nn.Module):
    """`0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
