"""The rules as data: against which limiter or flag, which action, along which dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kernel_compass.records.trial import Action


class Direction(Enum):
    """Where a dimension is moved."""

    MORE = "more"
    LESS = "less"
    OTHER = "other"
    """Any other value: it is a word or a switch."""


@dataclass(frozen=True)
class Rule:
    """One action against some limiters or flags."""

    action: Action
    why: str
    """For the user, why it should help."""
    limiters: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()
    """Names in a configuration; of several spaces."""
    direction: Direction = Direction.MORE

    def applies(self, limiter: str, flags: tuple[str, ...]) -> bool:
        """Whether it is against this."""
        return limiter in self.limiters or any(flag in self.flags for flag in flags)


_MEMORY = ("dram_bound", "l2_bound", "memory_bound")
_LATENCY = ("latency_bound", "occupancy_limited", "unclassified")

RULES = (
    Rule(Action.PRECISION, "bytes bound it, and another format stores fewer", _MEMORY),
    Rule(
        Action.VECTOR_WIDTH,
        "bytes bound it: another way to load or store them may use the cache better",
        _MEMORY,
        ("uncoalesced",),
        ("load", "store"),
        Direction.OTHER,
    ),
    Rule(
        Action.SPLIT_K,
        "too little runs at a time: more programs along K fill the GPU",
        _LATENCY,
        ("small_grid", "tail_effect"),
        ("split", "SPLIT_K", "warps_k"),
    ),
    Rule(
        Action.SPLIT_K,
        "programs wait for each other: fewer along K add up less at the end",
        _LATENCY,
        ("atomic_contention", "barrier_stalls"),
        ("split", "SPLIT_K", "warps_k"),
        Direction.LESS,
    ),
    Rule(
        Action.STAGES,
        "it waits for data: more loads in flight hide more of the latency",
        (*_LATENCY, *_MEMORY),
        (),
        ("num_stages", "ahead", "chains"),
    ),
    Rule(
        Action.STAGES,
        "shared memory limits how many programs are resident",
        (),
        ("occupancy_limited_by_shared_memory",),
        ("num_stages", "ahead"),
        Direction.LESS,
    ),
    Rule(
        Action.TILE,
        "too few programs: smaller tiles make more of them",
        _LATENCY,
        ("small_grid", "tail_effect", "occupancy_limited_by_registers", "register_spills"),
        ("BLOCK_N", "BLOCK_M", "fragments", "tiles", "rows", "BLOCK_K"),
        Direction.LESS,
    ),
    Rule(
        Action.TILE,
        "arithmetic bounds it: larger tiles feed the tensor cores better",
        ("compute_bound",),
        ("tensor_cores_idle", "dequant_bound"),
        ("BLOCK_N", "BLOCK_M", "fragments", "tiles", "tokens", "BLOCK_K"),
    ),
    Rule(
        Action.WARPS,
        "too few warps to hide latency",
        _LATENCY,
        ("low_occupancy", "dequant_bound"),
        ("num_warps", "warps_n"),
    ),
    Rule(
        Action.WARPS,
        "fewer warps have more registers each, and meet faster",
        (),
        ("register_spills", "barrier_stalls", "occupancy_limited_by_barriers"),
        ("num_warps", "warps_n"),
        Direction.LESS,
    ),
    Rule(
        Action.SWAP_OPERANDS,
        "few tokens: with the weight as the first operand a tile is not mostly padding",
        ("compute_bound", "latency_bound"),
        ("tensor_cores_idle",),
        ("SWAP", "swap"),
        Direction.OTHER,
    ),
    Rule(
        Action.PERSISTENT,
        "the last wave is uneven: persistent programs share the work out",
        (),
        ("tail_effect",),
        ("persistent", "PERSISTENT"),
        Direction.OTHER,
    ),
    Rule(
        Action.IMPLEMENTATION,
        "its own dimensions are no help against this: another implementation may be",
        ("launch_bound", "latency_bound"),
        ("bank_conflicts", "divergence", "uncoalesced"),
    ),
)
"""Asked in this order. Fusion is about the baseline as a whole: `whole_baseline.py`. Graph capture
changes the program around it: what is timed here is replayed in a CUDA graph already."""
