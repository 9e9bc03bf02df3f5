"""Tiles of the plain kernels: sizes for the rows at hand, spaces of configurations, grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from kernel_compass.kernels.plain_layouts import next_power_of_2
from kernel_compass.records.contracts import Config
from kernel_compass.records.workload import Workload

LEAST_ROWS = 16
"""Of a tile that `tl.dot` takes."""
SHARED_BYTES = {
    (8, 0): 166_912,
    (8, 6): 101_376,
    (8, 7): 166_912,
    (8, 9): 101_376,
    (9, 0): 232_448,
    (10, 0): 232_448,
    (12, 0): 101_376,
}
"""Shared memory a block may have, by the newest capability listed that is not above the GPU's
(CUDA's programming guide, technical specifications by compute capability)."""


def shared_limit(capability: tuple[int, int] | None) -> int:
    """Bytes of shared memory a block may use; the smallest known where the GPU is not known."""
    known = [size for oldest, size in SHARED_BYTES.items() if capability and oldest <= capability]
    return known[-1] if known else min(SHARED_BYTES.values())


def row_tile(workload: Workload, most: int) -> int:
    """BLOCK_M: the rows at hand rounded up to a power of two, 16 to `most`."""
    return min(max(next_power_of_2(workload.tokens), LEAST_ROWS), most)


def row_tiles(rows: int) -> list[int]:
    """Sizes to try where the rule wants `rows`: it and its half."""
    return sorted({rows, max(rows // 2, LEAST_ROWS)})


def weights_left(rows: int, capability: tuple[int, int] | None) -> bool:
    """SWAP: the weights as the left operand, where too few rows would keep Hopper's wide
    instruction away."""
    return rows < 64 and capability is not None and capability >= (9, 0)


def left_fits(config: Config) -> bool:
    """Whether weights that are the left operand fill that instruction: 64 columns, four warps."""
    wide = int(config["BLOCK_N"]) >= 64 and int(config["num_warps"]) >= 4
    return not config["SWAP"] or wide


def space_of(
    default: Config, choices: Mapping[str, Sequence[int]], fits: Callable[[Config], bool]
) -> list[Config]:
    """The default, then every other combination of the choices that fits, the last name fastest."""
    named = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    return [default, *(config for config in named if config != default and fits(config))]


def tile_grid(config: Config, y: Any) -> tuple[int, int]:
    """Programs for an output `(H, M, N)`: tiles of a head, heads; `device_tiles.tile_place`."""
    heads, rows, columns = y.shape
    return -(-rows // int(config["BLOCK_M"])) * -(-columns // int(config["BLOCK_N"])), heads
