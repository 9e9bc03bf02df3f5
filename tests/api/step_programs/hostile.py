"""Steps that a loop has to survive."""

import itertools
import os
import random

import torch


def dies():
    """The process ends itself at some call."""
    calls = itertools.count()

    def call():
        if next(calls) > 4:
            os._exit(7)
        return torch.ones(4)

    return call


def wanders():
    """Other results at every call, whatever torch's seed is."""
    return lambda: torch.full((4,), random.random())


def plain():
    """Nothing of it can be changed."""
    return lambda: torch.ones(4) * 2
