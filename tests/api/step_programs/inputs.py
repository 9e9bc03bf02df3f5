"""Steps that are given arguments, and functions that yield them."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


def _changed() -> bool:
    return torch.get_float32_matmul_precision() != "highest"


def long_ones_differ():
    """A change of the precision is right for two rows and wrong for more."""
    return lambda x: x * (1.5 if _changed() and len(x) > 2 else 1.0)


class Cache(nn.Module):
    """Writes a row, and reads all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.arange(12.0).reshape(4, 3))

    def forward(self, at: int, x: Tensor) -> Tensor:
        self.rows[at] = x
        return self.rows.sum(0)


def cached():
    """What it writes lies elsewhere for each input."""
    return Cache()


def rows() -> Iterator[tuple[int, Tensor]]:
    """Arguments of `cached`."""
    for at in (0, 2, 3):
        yield at, torch.full((3,), 10.0 * (at + 1))


def short() -> Iterator[tuple[Tensor]]:
    """The same memory each time."""
    x = torch.zeros(2)
    for _ in range(3):
        x += 1
        yield (x,)


def mixed() -> list[dict[str, Tensor]]:
    """Arguments by name."""
    return [{"x": torch.ones(2)}, {"x": torch.ones(3)}]


def none() -> list[tuple[Tensor]]:
    """Nothing at all."""
    return []


def bare() -> list[Tensor]:
    """A tensor in place of a tuple."""
    return [torch.ones(2)]


def wrong() -> Iterator[tuple[Tensor, ...]]:
    """The second has an argument too many."""
    yield (torch.ones(2),)
    yield torch.ones(2), torch.ones(2)
