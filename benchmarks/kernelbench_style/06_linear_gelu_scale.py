"""A linear layer with an epilogue of its own operators."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 1024
in_features = 4096
out_features = 4096


class Model(nn.Module):
    """`GELU(x W^T + b) * scale`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.rand(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x)) * self.scale


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
