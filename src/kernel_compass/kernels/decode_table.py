"""Which configuration of the decode kernels is used: a measured table, and a rule beside it.

`decode_table.json` holds the best configuration of each shape that `benchmarks/decode_search.py`
timed on an H200, by the product of its warm and cold time (whoever calls does not know where L2
stands). Another shape takes the configuration of the nearest one, by factors in H, M, K and N.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import log2
from typing import Any

from kernel_compass.kernels.decode import DecodeConfig, configuration, legal
from kernel_compass.kernels.fragments import PADDED_ROWS, run_length
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.workload import Workload

ALIKE = {Code.INT8: Code.FP8, Code.FP16: Code.BF16}
"""Codes that use another's rows: as many bits, a conversion of about the same length."""
_WEIGHTS = (0.7, 1.0, 1.5, 1.0)
"""How much a factor of two in H, M, K and N counts."""


@dataclass(frozen=True)
class Row:
    """The best of one shape."""

    code: Code
    heads: int
    tokens: int
    reduction: int
    columns: int
    best: DecodeConfig
    invariant: DecodeConfig | None
    """The best of those that add along K in the same order at every number of tokens."""
    behind_cublas: bool
    """Whether cuBLAS in 16 bits was faster, warm or cold."""


@cache
def rows() -> tuple[Row, ...]:
    """The table as it ships."""
    text = files("kernel_compass.kernels").joinpath("decode_table.json").read_text()
    return tuple(_row(row) for row in json.loads(text)["rows"])


def _row(row: Mapping[str, Any]) -> Row:
    heads, tokens, reduction, columns = row["shape"]
    invariant = configuration(row["invariant"]) if row["invariant"] else None
    best = configuration(row["best"])
    behind = bool(row.get("behind_cublas"))
    return Row(Code(row["code"]), heads, tokens, reduction, columns, best, invariant, behind)


def behind_cublas(workload: Workload, number_format: NumberFormat) -> bool:
    """Whether cuBLAS in 16 bits was faster on the nearest shape that was measured, on an H200.

    The weights are then better left as they are, for speed.
    """
    code = ALIKE.get(number_format.weight, number_format.weight)
    near = (row for row in rows() if row.code is code)
    nearest = min(near, key=lambda row: _distance(row, workload), default=None)
    return nearest is not None and nearest.behind_cublas


def choose(
    workload: Workload, number_format: NumberFormat, hopper: bool, invariant: bool = False
) -> DecodeConfig:
    """The configuration for a workload.

    Args:
        workload: its tokens are rounded up to 1, 4, 16 or 64, or a multiple of 64.
        number_format: 16-bit activations.
        hopper: whether Gluon's kernels may be used.
        invariant: sums along K in the same order for all tokens, so that a token's row is the same
            to the bit whatever stands beside it.
    """
    if not hopper:
        return _plain(workload, number_format, invariant)
    code = ALIKE.get(number_format.weight, number_format.weight)
    near = sorted((r for r in rows() if r.code is code), key=lambda row: _distance(row, workload))
    if invariant and near:
        return _invariant(near, workload, number_format)
    for row in near:
        best = row.best
        if workload.weights < row.heads * row.reduction * row.columns:
            best = replace(best, load="")  # smaller weights may stay in L2, if they are left there
        if row.tokens < _bucket(workload.tokens) and best.kernel == "wgmma":
            best = replace(best, tokens=_tokens(workload, best.kernel))
        fitted = _fitted(best, workload, number_format)
        if fitted is not None:
            return fitted
    return _generic(workload, number_format)


def _distance(row: Row, workload: Workload) -> float:
    ours = (workload.heads, _bucket(workload.tokens), workload.reduction, workload.columns)
    theirs = (row.heads, row.tokens, row.reduction, row.columns)
    pairs = zip(_WEIGHTS, ours, theirs, strict=True)
    return sum(w * abs(log2(max(a, 1) / b)) for w, a, b in pairs)


def _bucket(tokens: int) -> int:
    return next((size for size in (1, 4, 16) if tokens <= size), 64)


def _fitted(
    config: DecodeConfig, workload: Workload, number_format: NumberFormat
) -> DecodeConfig | None:
    """The configuration with as many tokens and rows as the workload wants, if it can be built."""
    tokens = _tokens(workload, config.kernel)
    if config.kernel == "mma" and tokens > config.tokens:
        tokens = max(config.tokens, 16)
    if config.kernel == "wgmma":
        tokens = min(tokens, config.tokens)
    rows_ = config.rows
    if number_format.groups(workload.reduction) > 1:
        group = number_format.group or rows_
        rows_ = min(rows_, group)
        tokens = min(tokens, 32)
        if tokens > 8 and rows_ > 32:
            config = replace(config, chains=1)  # a sum a group beside the running one would spill
    fitted = replace(config, tokens=tokens, rows=rows_)
    if fitted.depth < workload.reduction:
        fitted = replace(fitted, tiles=1, hold=False)
    if not legal(fitted, workload, number_format):
        fitted = replace(fitted, ahead=1, split=1)
    return fitted if legal(fitted, workload, number_format) else None


def _tokens(workload: Workload, kernel: str) -> int:
    least = 16 if kernel == "wgmma" else 8
    return min(64, max(least, 1 << max(workload.tokens - 1, 0).bit_length()))


def _invariant(near: list[Row], workload: Workload, number_format: NumberFormat) -> DecodeConfig:
    """A configuration whose order along K is the one chosen for a single token of this shape."""
    one = replace(workload, tokens=1)
    first = min(near, key=lambda row: _distance(row, one))
    single = first.invariant and _fitted(first.invariant, one, number_format)
    base = single or _generic(one, number_format)
    family = [row.invariant for row in near if row.invariant is not None]
    for config in (*family, base):
        fitted = _fitted(config, workload, number_format)
        if fitted is not None and _order(fitted) == _order(base):
            return fitted
    return base


def _order(config: DecodeConfig) -> tuple[int, int, int]:
    """What decides in which order a sum along K is taken; the rest only says who takes it."""
    return config.warps_k, config.chains, config.rows


def _generic(workload: Workload, number_format: NumberFormat) -> DecodeConfig:
    """A configuration that is legal for every shape."""
    run = run_length(number_format.weight)
    group = number_format.group if number_format.groups(workload.reduction) > 1 else None
    rows_ = min(128, group or 128)
    deep = -(-workload.reduction // PADDED_ROWS) * PADDED_ROWS
    chains = 2 if rows_ == 32 else 1
    warps_k = next(n for n in (4, 2, 1) if n * rows_ * chains <= deep)
    return DecodeConfig("mma", run, 1, warps_k, chains, rows_, 8 if workload.tokens <= 8 else 16)


def _plain(workload: Workload, number_format: NumberFormat, invariant: bool) -> DecodeConfig:
    group = number_format.group if number_format.groups(workload.reduction) > 1 else None
    least = 64 if number_format.weight is Code.INT4 else 32
    rows_ = max(least, min(128, group or 128))
    tokens = 16 if invariant or workload.tokens <= 16 else 64
    return DecodeConfig("plain", 4, 4, rows=rows_, tokens=tokens)
