"""Pieces of a large weight, so that a float64 copy of it never exists as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_compass.records.number_format import BLOCK

CHUNK_ELEMENTS = 1 << 24
"""Elements of a piece: 128 MiB in float64."""


def chunks(
    heads: int, reduction: int, columns: int, elements: int = CHUNK_ELEMENTS
) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and of columns that cover a weight `(H, K, N)` once.

    Columns are cut at multiples of `BLOCK`, so that scales of blocks can be cut with them.
    """
    across = max(BLOCK, elements // max(reduction, 1) // BLOCK * BLOCK)
    across = min(across, columns)
    down = max(1, elements // max(reduction * across, 1))
    for head in range(0, heads, down):
        for column in range(0, columns, max(across, 1)):
            yield slice(head, min(head + down, heads)), slice(column, min(column + across, columns))


def scale_columns(columns: slice, block: bool) -> slice:
    """The columns of the scales that belong to columns of the weight."""
    return slice(columns.start // BLOCK, -(-columns.stop // BLOCK)) if block else columns
