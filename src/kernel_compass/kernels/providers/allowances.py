"""Where implementations round beside their result, by their sources: what a check allows them."""

from __future__ import annotations

from collections.abc import Mapping

ROUNDED: Mapping[str, str] = {
    "tinygemm_w4": "weights",
    "gemlite_w8a16": "weights",
    "gemlite_w4a16": "weights",
    "humming_w8a16": "weights",
    "humming_w4a16": "weights",
    "study_w4a16": "weights",
    "torchao_int8_weight_only": "sums, before they are scaled",
    "torchao_int8_dynamic": "sums, before they are scaled",
}
"""What they round to 16 bits beside the result."""

SUMS_OF_16_BITS: Mapping[str, float] = {
    "gemlite_w8a16": 1e-2,
    "gemlite_w4a16": 1e-2,
    "gemlite_w8a8": 1e-2,
    "humming_w8a16": 6e-3,
    "humming_w4a16": 6e-3,
}
"""Add up shares of K in 16 bits, in memory, a rounding for each: the relative Frobenius error that
is allowed. An element may be off by a rounding of the whole sum for every 16 of K, the least share.
gemlite does it by atomics; humming where few columns and a long K leave multiprocessors idle
(`gmem_writer.cuh`), at most 0.43 % on an H200 (K = 14336, N = 4096).
"""

OWN_ACTIVATIONS: Mapping[str, float] = {
    "torchao_int8_dynamic": 1.5e-2,
    "torchao_float8_dynamic": 3.5e-2,
}
"""Quantize activations in another way than `references` (a scale of `absmax / 127.5`; one rounded
to bf16): judged against the product of the unquantized ones, by the error that their format may
have as a whole."""
