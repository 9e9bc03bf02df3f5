"""One configuration of the decode kernels, as those that build them and those that count on them
know it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from kernel_compass.records.contracts import Config


@dataclass(frozen=True)
class DecodeConfig:
    """One point of the space."""

    kernel: str
    """`mma`, `wgmma` (Hopper, Gluon) or `plain`."""
    fragments: int
    """Fragments of 16 columns a warp holds at a time; in `plain` a program."""
    warps_n: int
    """Warps along the columns."""
    warps_k: int = 1
    """Warps along K, whose sums meet in shared memory; `mma` only."""
    chains: int = 1
    """Independent sums of a warp along K; `mma` only."""
    rows: int = 128
    """Rows of K of a sum's step."""
    tokens: int = 8
    """Tokens of a program."""
    tiles: int = 1
    """Tiles of columns a program takes one after the other, where a step is all of K."""
    load: str = ""
    """The weights' loads: empty, `evict_first`, or `cg`, which leaves L1 to the activations."""
    store: str = ""
    """... of the output's stores."""
    hold: bool = False
    """Whether all first loads are issued before any arithmetic."""
    ahead: int = 1
    """Steps along K that are loaded before they are needed; `mma` only, more than one where there
    are few steps."""
    split: int = 1
    """Programs that share K; `wgmma` only. Their sums meet in memory, in order."""
    registers: int = 0
    """Most registers of a thread; 0 = as the compiler likes."""

    @property
    def warps(self) -> int:
        """Warps of a program."""
        return self.warps_n * self.warps_k

    @property
    def depth(self) -> int:
        """Rows of K of a program's step."""
        return self.rows * self.chains * self.warps_k

    def as_config(self) -> Config:
        """Plain values."""
        return asdict(self)

    @classmethod
    def among(cls, config: Config) -> DecodeConfig:
        """What of a configuration is of these kernels; other names are passed over.

        Raises:
            TypeError: `kernel`, `fragments` or `warps_n` is missing.
        """
        known = {field.name for field in fields(cls)}
        return cls(**{k: v for k, v in config.items() if k in known})  # type: ignore[arg-type]
