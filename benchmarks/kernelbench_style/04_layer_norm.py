"""LayerNorm after a residual."""

import torch
from torch import nn

batch_size = 16
length = 1024
dim = 4096


class Model(nn.Module):
    """`LayerNorm(x + y)`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.norm(x + y)


def get_inputs():
    return [torch.randn(batch_size, length, dim), torch.randn(batch_size, length, dim)]


def get_init_inputs():
    return [dim]
