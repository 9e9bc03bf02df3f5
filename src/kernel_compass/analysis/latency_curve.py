"""The formula of the latency model over many launches at once, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_compass.analysis.cache_fit import TRANSITION_WIDTH
from kernel_compass.analysis.ceilings import Ceilings, Curve
from kernel_compass.analysis.kernel_terms import KernelTerms
from kernel_compass.records.workload import Traffic

Array = NDArray[np.float64]

OVERLAP = 3.0
"""Exponent that joins memory, arithmetic and conversion: 1 = one after the other, infinite = a
perfect overlap (their maximum)."""
DEQUANTIZATION_TILE = 128
"""Tokens a tile holds at most: beyond it weights are converted once for every such tile."""
STEP = 1e-4


@dataclass(frozen=True)
class Batch:
    """Launches as arrays of one length."""

    weight_bytes: Array
    other_bytes: Array
    activation_bytes: Array
    flops: Array
    dequantized: Array
    tokens: Array
    """NaN where not known."""
    peak_tflops: Array
    streamed_cold: Array
    """True where the weights lie in DRAM before the launch."""
    blocks: Array
    """Thread blocks of the launch; NaN where not known."""

    @classmethod
    def of(
        cls,
        traffics: Sequence[Traffic],
        cold: Sequence[bool],
        ceilings: Ceilings,
        blocks: Sequence[int | None] | None = None,
    ) -> Batch:
        """The arrays of these launches."""

        def column(values: Sequence[float | None]) -> Array:
            return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

        return cls(
            weight_bytes=column([t.weight_bytes for t in traffics]),
            other_bytes=column([t.activation_bytes + t.output_bytes for t in traffics]),
            activation_bytes=column([t.activation_bytes for t in traffics]),
            flops=column([t.flops for t in traffics]),
            dequantized=column([t.dequantized_weights for t in traffics]),
            tokens=column([t.tokens for t in traffics]),
            peak_tflops=column([ceilings.peak(t.math) for t in traffics]),
            streamed_cold=np.array(cold, dtype=bool),
            blocks=column(blocks or [None] * len(traffics)),
        )


@dataclass(frozen=True)
class Parts:
    """Where the time goes, microseconds; one entry a launch."""

    fixed: Array
    l2: Array
    dram: Array
    compute: Array
    dequantization: Array
    activation_pass: Array

    @property
    def total(self) -> Array:
        """Fixed + the overlapped body + a separate pass over the activations."""
        memory = self.l2 + self.dram
        body = sum(part**OVERLAP for part in (memory, self.compute, self.dequantization))
        return np.asarray(
            self.fixed + np.asarray(body) ** (1 / OVERLAP) + self.activation_pass, dtype=np.float64
        )


def parts(values: dict[str, Any], terms: KernelTerms, batch: Batch, ceilings: Ceilings) -> Parts:
    """The time of each part.

    Args:
        values: every term's value by name; each a number, or an array that broadcasts against
            the launches.
    """
    ws = batch.weight_bytes + batch.other_bytes
    hit = hit_fraction(ws, ceilings.c_eff_bytes * values["capacity_ratio"])
    weight_hit = np.where(batch.streamed_cold, 0.0, hit)
    served = (batch.weight_bytes * weight_hit + batch.other_bytes * hit) / np.maximum(ws, 1.0)
    l2_us = level_us(ws, ceilings.bw_l2_tbs, ceilings.warm) / values["l2_efficiency"]
    dram_us = level_us(ws, ceilings.bw_dram_tbs, ceilings.cold) / values["dram_efficiency"]
    rate = values.get("activation_pass_efficiency")
    waves = wave_stretch(batch.blocks, terms.blocks_per_sm, ceilings.sm_count)
    return Parts(
        fixed=ceilings.t0_us * values["launches"] + 0.0 * ws,
        l2=served * l2_us,
        # What DRAM serves passes through L2 as well, so it takes at least as long.
        dram=(1 - served) * np.maximum(dram_us, l2_us),
        compute=waves
        * tiled_flops(batch, terms.tile_tokens)
        / (batch.peak_tflops * 1e6 * values["math_efficiency"]),
        dequantization=waves
        * _dequantization_us(batch, terms, ceilings)
        / values["dequantization_efficiency"],
        # Read at 16 bits, written at 8.
        activation_pass=0.0 * ws
        if rate is None
        else 1.5 * batch.activation_bytes / (ceilings.bw_dram_tbs * 1e6 * rate),
    )


def hit_fraction(working_set: Array, capacity: Any) -> Array:
    """Share of a re-read working set that is still in L2: soft around the capacity."""
    with np.errstate(divide="ignore"):
        x = np.log(working_set / capacity) / TRANSITION_WIDTH
    return np.asarray(1 / (1 + np.exp(np.clip(x, -60, 60))), dtype=np.float64)


def level_us(size: Array, bandwidth_tbs: float, curve: Curve | None) -> Array:
    """Time to stream bytes from one level beyond the fixed cost: off the measured curve, from
    the origin to its first point and past its last one at the plateau; without a curve, bytes
    over the plateau."""
    if curve is None:
        return size / (bandwidth_tbs * 1e6)
    sizes, times = (np.array((0.0, *side)) for side in curve)
    inside = np.interp(size, sizes, times)
    return np.asarray(inside + np.maximum(size - sizes[-1], 0.0) / (bandwidth_tbs * 1e6))


def tiled_flops(batch: Batch, tile_tokens: tuple[int, ...]) -> Array:
    """The arithmetic with the tokens rounded up to whole tiles of the rows that fit them."""
    tiles = np.array(tile_tokens)
    fitting = np.minimum(np.searchsorted(tiles, batch.tokens), tiles.size - 1)
    tile = tiles[fitting]
    rounded = np.ceil(batch.tokens / tile) * tile / batch.tokens
    return np.asarray(batch.flops * np.where(np.isnan(rounded), 1.0, rounded), dtype=np.float64)


def wave_stretch(blocks: Array, blocks_per_sm: int, sm_count: int | None) -> Array:
    """How much longer the SMs' own work takes because blocks come in whole waves.

    All slots of its waves / slots used; 1 where the grid is not known. The levels
    all SMs share are not stretched: fewer SMs still draw on their full bandwidth.
    """
    if sm_count is None:
        return np.ones_like(blocks)
    waves = blocks / (sm_count * blocks_per_sm)
    return np.asarray(np.where(np.isnan(waves), 1.0, np.ceil(waves) / waves), dtype=np.float64)


def _dequantization_us(batch: Batch, terms: KernelTerms, ceilings: Ceilings) -> Array:
    rate = (ceilings.dequantization_tweights_s or {}).get(terms.weight_format)
    if rate is None:
        return 0.0 * batch.flops
    times = np.ceil(batch.tokens / DEQUANTIZATION_TILE)
    weights = batch.dequantized * np.where(np.isnan(times), 1.0, times)
    return np.asarray(weights / (rate * 1e6), dtype=np.float64)


def log_time(theta: Array, terms: KernelTerms, batch: Batch, ceilings: Ceilings) -> Array:
    """Natural logarithm of the time.

    Args:
        theta: (..., p) logarithms of the fitted terms, in the order of `terms.names`.

    Returns:
        (..., n).
    """
    values: dict[str, Any] = {name: term.value for name, term in terms.items()}
    values |= {name: np.exp(theta[..., i, None]) for i, name in enumerate(terms.names)}
    total = parts(values, terms, batch, ceilings).total
    return np.log(np.broadcast_to(total, (*theta.shape[:-1], total.shape[-1])))


def linearized(
    theta: Array, terms: KernelTerms, batch: Batch, ceilings: Ceilings
) -> tuple[Array, Array]:
    """log time (n) and its derivatives (n, p) by central differences."""
    step = STEP * np.eye(len(theta))
    both = log_time(np.stack([theta + step, theta - step]), terms, batch, ceilings)
    return log_time(theta, terms, batch, ceilings), (both[0] - both[1]).T / (2 * STEP)


def log_terms(terms: KernelTerms) -> tuple[Array, Array]:
    """Logarithms of the fitted terms' medians, and their standard deviations."""
    by_name = dict(terms.items())
    chosen = [by_name[name] for name in terms.names]
    return np.log([t.value for t in chosen]), np.array([t.log_sd for t in chosen])
