"""The decoder block of `examples/decoder_block.py`, as `decoder.py` makes it: what could be won."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from steps.formulas import (
    ATTENTION_REACHED,
    ELEMENT,
    FLASH_TFLOPS,
    Part,
    Prediction,
    cold_us,
    predicted,
    product,
    small,
    wide,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from decoder_block import PHASES, Config

SPLIT_PRODUCTS = 5
"""Products with 16 rows whose sums cuBLAS adds in a kernel of their own (an H200's trace of the
block, `tests/golden/kineto`); its time is in what a product takes beyond its floor."""


def decode() -> Prediction:
    """Eager: the GPU waits for some forty short kernels."""
    sizes = _sizes("decode")
    floor = cold_us(2 * sizes.tokens * sizes.context * sizes.kv_heads * sizes.head_dim * ELEMENT)
    parts = (
        *_products(sizes),
        Part("sums of split products", SPLIT_PRODUCTS, 0.0, 0.0),
        Part("attention", 1, floor / ATTENTION_REACHED, floor),
        # cast, square, mean, eps, root, scale, cast back, gain: of each of the two
        small("norms", 16, 2),
        # two products, negated, joined, added: of queries and of keys
        small("rotations", 10, 2),
        small("copies into the caches", 2, 1),
        small("residuals", 2, 0),
        small("SiLU and gate", 2, 1),
    )
    return predicted("decode", sizes, parts, False)


def prefill() -> Prediction:
    """Eager, and the GPU is busy: with arithmetic, and with passes over activations."""
    sizes = _sizes("prefill")
    one = sizes.tokens * sizes.hidden * ELEMENT
    inner = sizes.tokens * sizes.ffn * ELEMENT
    keys = sizes.kv_heads / sizes.heads
    width = sizes.heads * sizes.head_dim
    attention = 4 * sizes.tokens * sizes.context * width / 2 / (FLASH_TFLOPS * 1e6)
    parts = (
        *_products(sizes),
        Part("attention", 1, attention, attention),
        # of a norm: to float32 3, square 4, mean 2, scale 4, back 3, gain 2; two residuals of 3;
        # left are a norm of 2, one with its residual of 4, a residual of 3
        wide("norms and residuals", 3 * one, 9 * one, 14),
        small("norms' roots", 4, 0),
        # half negated 1, joined 2, two products of 2, their sum 3; left is one pass
        wide("rotations", (1 + keys) * one, 2 * (1 + keys) * one, 10),
        wide("copies into the caches", 2 * keys * one, 2 * keys * one, 2),
        wide("SiLU and gate", 2.5 * inner, 3 * inner, 2),
    )
    return predicted("prefill", sizes, parts, False)


def _sizes(phase: str) -> Any:
    config, work = Config(), PHASES[phase]
    return argparse.Namespace(
        hidden=config.hidden,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        ffn=config.ffn,
        tokens=work.batch * work.tokens,
        context=work.context,
    )


def _products(a: Any) -> tuple[Part, ...]:
    width, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
    return (
        product("query", a.tokens, a.hidden, width),
        product("key and value", a.tokens, a.hidden, keys, count=2),
        product("output", a.tokens, width, a.hidden),
        product("gate and up", a.tokens, a.hidden, a.ffn, count=2),
        product("down", a.tokens, a.ffn, a.hidden),
    )
