"""A model whose time goes into small operators, on a CPU: what compiling its runs can help."""

import torch
from torch import Tensor, nn


class Gated(nn.Module):
    """Many passes over one tensor, each of which reads what the one before wrote."""

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for scale in (0.5, 0.25, 0.125, 0.75):
            y = (y * scale + x) * 0.5
            y = torch.relu(y - 0.1) + y * 0.3
        return y


class Model(nn.Module):
    """Two of them around a product."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first, self.last = Gated(), Gated()
        self.middle = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x)))


def step():
    """The step, its inputs made once."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model().eval()
    x = torch.randn(1024, 64)

    def call() -> Tensor:
        with torch.no_grad():
            return model(x)

    return call
