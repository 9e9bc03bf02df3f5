"""What Stage 2 answers for one kernel in one regime."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Limiter(StrEnum):
    """What bounds the kernel's time."""

    DRAM_BOUND = "dram_bound"
    L2_BOUND = "l2_bound"
    L1_BOUND = "l1_bound"
    COMPUTE_BOUND = "compute_bound"
    LATENCY_BOUND = "latency_bound"
    LAUNCH_BOUND = "launch_bound"
    UNCLASSIFIED = "unclassified"

    @classmethod
    def _missing_(cls, value: object) -> Limiter | None:
        old = {"memory_bound": cls.DRAM_BOUND, "occupancy_limited": cls.LATENCY_BOUND}
        return old.get(str(value))


class Flag(StrEnum):
    """A finding beside the limiter."""

    L2_RESIDENT = "l2_resident"
    RESIDENCY_UNKNOWN = "residency_unknown"
    LOW_OCCUPANCY = "low_occupancy"
    OCCUPANCY_LIMITED_BY_REGISTERS = "occupancy_limited_by_registers"
    OCCUPANCY_LIMITED_BY_SHARED_MEMORY = "occupancy_limited_by_shared_memory"
    OCCUPANCY_LIMITED_BY_BLOCKS = "occupancy_limited_by_blocks"
    OCCUPANCY_LIMITED_BY_WARPS = "occupancy_limited_by_warps"
    OCCUPANCY_LIMITED_BY_BARRIERS = "occupancy_limited_by_barriers"
    UNCOALESCED = "uncoalesced"
    BANK_CONFLICTS = "bank_conflicts"
    REGISTER_SPILLS = "register_spills"
    TAIL_EFFECT = "tail_effect"
    SMALL_GRID = "small_grid"
    ATOMIC_CONTENTION = "atomic_contention"
    BARRIER_STALLS = "barrier_stalls"
    DIVERGENCE = "divergence"
    TENSOR_CORES_IDLE = "tensor_cores_idle"
    DEQUANT_BOUND = "dequant_bound"


class Reuse(StrEnum):
    """Whose earlier access filled L2, where the bytes were served from it."""

    WITHIN = "within"
    BETWEEN = "between"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Evidence:
    """One number that decided something."""

    metric: str
    """A key of `records.metrics`, or a ratio of such keys in words."""
    value: float
    unit: str
    """`%`, `bytes`, `us`, `ratio`, ..."""
    meaning: str
    """What the number says, threshold included."""
    threshold: float | None = None


@dataclass(frozen=True)
class Headroom:
    """Time over the floor, and what the floor was derived from."""

    value: float
    basis: str
    """`compulsory` (the op is known) or `traffic` (from the counters)."""


@dataclass(frozen=True)
class Diagnosis:
    """The answer for one kernel in one regime."""

    limiter: Limiter
    confidence: float
    """0 to 1: margin to the thresholds times completeness of the evidence."""
    evidence: tuple[Evidence, ...]
    pipe: str | None = None
    """The saturated pipe of a compute-bound kernel: `tensor`, `fma`, `xu`, ..."""
    flags: tuple[Flag, ...] = ()
    reuse: Reuse | None = None
    headroom: Headroom | None = None
    advice: tuple[str, ...] = ()
