"""The decoder block of `examples/decoder_block.py` as a step: `decode` and `prefill`.

kernel-compass optimize --entry benchmarks/steps/decoder.py:decode
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from decoder_block import PHASES, make_block, make_input


def decode() -> Callable[[], Tensor]:
    return _step("decode")


def prefill() -> Callable[[], Tensor]:
    return _step("prefill")


def _step(phase: str) -> Callable[[], Tensor]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    block = make_block(PHASES[phase], device)
    with torch.inference_mode(False), torch.no_grad():
        x = make_input(block)

    def step() -> Tensor:
        with torch.no_grad():
            return block(x)

    return step
