"""How far the formula may be off, and how alike it is off at two launches: a Gaussian process.

Its amplitudes are stated beliefs about kernels in general, in the logarithm of time.
"""

from __future__ import annotations

import numpy as np

from kernel_compass.analysis.latency_curve import Array, Batch

SMOOTH = 0.08
"""8 %: what a formula of a few terms misses, changing slowly over size and tokens."""
SMOOTH_OCTAVES = (1.5, 2.0)
"""Over which the weights' size and the tokens must change for that to be forgotten."""
TILE = 0.08
"""8 %: what a token count brings with it at every size, as tiles are chosen by it."""
TILE_OCTAVES = (8.0, 0.7)
NOISE = 0.02
"""2 %: of one measured time."""


def features(batch: Batch) -> Array:
    """(n, 2): octaves of the weights' size and of the arithmetic per weight byte (tokens, up to
    a constant)."""
    size = np.maximum(batch.weight_bytes, 1.0)
    return np.stack([np.log2(size), np.log2(np.maximum(batch.flops, 1.0) / size)], axis=1)


def covariance(a: Array, b: Array, shape_choice_sd: float) -> Array:
    """(n, m): covariance of the formula's error at features `a` and `b`.

    `shape_choice_sd` is shared by launches of one weight shape alone: the kernel chosen for it.
    """
    size = a[:, None, 0] - b[None, :, 0]
    tokens = a[:, None, 1] - b[None, :, 1]
    same_shape = np.abs(size) < 1e-9
    smooth = SMOOTH**2 * _bell(size, tokens, SMOOTH_OCTAVES)
    tile = TILE**2 * _bell(size, tokens, TILE_OCTAVES)
    choice = shape_choice_sd**2 * same_shape * _bell(size, tokens, SMOOTH_OCTAVES)
    return np.asarray(smooth + tile + choice, dtype=np.float64)


def _bell(size: Array, tokens: Array, octaves: tuple[float, float]) -> Array:
    return np.asarray(np.exp(-0.5 * ((size / octaves[0]) ** 2 + (tokens / octaves[1]) ** 2)))
