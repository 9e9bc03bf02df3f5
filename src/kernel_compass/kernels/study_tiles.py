"""The first study's rule of tiles, which its two kernels share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_compass.kernels.plain_tiles import row_tile
from kernel_compass.records.contracts import Config
from kernel_compass.records.workload import Workload


@dataclass(frozen=True)
class StudyTiles:
    """Rows rounded up to 16 ... 128, 64 columns or 128 where there are many."""

    depth: int
    """K of a tile."""

    def default_config(self, workload: Workload, _capability: tuple[int, int] | None) -> Config:
        """The study's rule."""
        return self._config(row_tile(workload, 128), 128 if workload.columns >= 2048 else 64)

    def space(self, workload: Workload, capability: tuple[int, int] | None) -> Sequence[Config]:
        """What the study tuned over, 64 or 128 columns, the default first."""
        default = self.default_config(workload, capability)
        both = (self._config(int(default["BLOCK_M"]), columns) for columns in (64, 128))
        return [default, *(config for config in both if config != default)]

    def _config(self, rows: int, columns: int) -> Config:
        sizes = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": self.depth}
        return {**sizes, "num_warps": 8 if rows * columns > 8192 else 4, "num_stages": 3}
