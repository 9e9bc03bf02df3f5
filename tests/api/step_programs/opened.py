"""Steps that write down each time their program is opened, and remember what was done to them."""

import os
from pathlib import Path

import torch


def _opened():
    with Path(os.environ["OPENED"]).open("a") as file:
        file.write("opened\n")


def _precision():
    return torch.get_float32_matmul_precision()


def plain():
    """Every change comes off without a trace."""
    _opened()
    a = torch.ones(64, 64)
    return lambda: a @ a


def resentful():
    """It dies when its precision is changed again after it was put back."""
    _opened()
    seen = ["highest"]

    def call():
        if _precision() != seen[-1]:
            seen.append(_precision())
        if seen.count("high") > 16:  # sides are put on and taken off again and again in one trial
            os._exit(9)
        return torch.ones(4)

    return call


def stained():
    """Once its precision was changed it gives other results, for good."""
    _opened()
    seen = []

    def call():
        if _precision() != "highest":
            seen.append(1)
        return torch.full((4,), 1.0 + 1e-7 * bool(seen) if _precision() == "highest" else 1.0)

    return call
