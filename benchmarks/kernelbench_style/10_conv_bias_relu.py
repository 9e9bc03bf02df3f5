"""A convolution with a bias, a shift and a ReLU behind it."""

import torch
from torch import nn

batch_size = 64
in_channels = 64
out_channels = 128
size = 64
kernel_size = 3


class Model(nn.Module):
    """`relu(conv(x)) + shift`, then halved."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, padding=1)
        self.shift = nn.Parameter(torch.randn(outputs, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.relu(self.conv(x)) + self.shift) * 0.5


def get_inputs():
    return [torch.randn(batch_size, in_channels, size, size)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
