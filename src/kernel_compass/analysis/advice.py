"""What would help, in a phrase, per limiter and flag. Phrases, not promises: Stage 5 measures."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernel_compass.records.diagnosis import Flag, Limiter, Reuse

LIMITER_ADVICE: Mapping[Limiter, str] = MappingProxyType(
    {
        Limiter.DRAM_BOUND: "move fewer bytes: lower precision, fusion, or keep the operand in L2",
        Limiter.L2_BOUND: "re-use data in shared memory or registers; larger tiles, multicast",
        Limiter.L1_BOUND: "fewer shared-memory and L1 wavefronts: wider accesses, register reuse",
        Limiter.COMPUTE_BOUND: "fewer or cheaper operations; another pipe or precision",
        Limiter.LATENCY_BOUND: "more independent work in flight: more warps or blocks, unrolling, "
        "prefetch, split-K",
        Limiter.LAUNCH_BOUND: "fuse it with its neighbours or capture the run in a CUDA graph",
        Limiter.UNCLASSIFIED: "nothing dominates by these counters; profile with "
        "`kernel-compass profile` for a full set",
    }
)

PIPE_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "tensor": "at the tensor cores' rate: only lower precision or fewer operations help",
        "fma": "FP32 pipe saturated: tensor cores, packed half precision, or fewer operations",
        "fp64": "FP64 pipe saturated: is double precision needed?",
        "alu": "integer/logic pipe saturated: cheaper indexing or unpacking, fewer conversions",
        "xu": "special-function pipe saturated: cheaper approximations, fewer conversions",
        "fp16": "packed half-precision pipe saturated: tensor cores",
    }
)

FLAG_ADVICE: Mapping[Flag, str] = MappingProxyType(
    {
        Flag.RESIDENCY_UNKNOWN: "find out where the operands sit (`--regime in_situ`) before "
        "deciding on precision",
        Flag.LOW_OCCUPANCY: "raise occupancy, or give each warp more independent loads",
        Flag.OCCUPANCY_LIMITED_BY_REGISTERS: "fewer registers a thread (smaller tile, launch "
        "bounds)",
        Flag.OCCUPANCY_LIMITED_BY_SHARED_MEMORY: "less shared memory a block (fewer stages)",
        Flag.OCCUPANCY_LIMITED_BY_BLOCKS: "more warps a block: the SM's block slots run out",
        Flag.OCCUPANCY_LIMITED_BY_WARPS: "block size that divides the SM's warp slots",
        Flag.OCCUPANCY_LIMITED_BY_BARRIERS: "fewer barriers a block",
        Flag.UNCOALESCED: "let neighbouring threads touch neighbouring bytes; stage through shared "
        "memory",
        Flag.BANK_CONFLICTS: "pad or swizzle the shared-memory layout",
        Flag.REGISTER_SPILLS: "keep values in registers: smaller tile, higher register limit, "
        "constant indices",
        Flag.TAIL_EFFECT: "fit the grid to whole waves, or make the kernel persistent",
        Flag.SMALL_GRID: "more blocks: split the reduction or use smaller tiles",
        Flag.ATOMIC_CONTENTION: "reduce within the block first, or spread the addresses",
        Flag.BARRIER_STALLS: "fewer or narrower barriers; balance the work before them",
        Flag.DIVERGENCE: "let the threads of a warp take the same branch",
        Flag.TENSOR_CORES_IDLE: "a matrix product without tensor cores: use them",
        Flag.DEQUANT_BOUND: "cheaper unpacking: packed conversions, a layout made for it, weights "
        "as the register operand",
    }
)


def launch_advice(in_graph: int, launches: int) -> str:
    """What is left to do for launch-bound kernels of which a CUDA graph launches some already.

    Args:
        in_graph: launches that are seen inside a graph.
        launches: all of them.
    """
    if in_graph <= 0:
        return LIMITER_ADVICE[Limiter.LAUNCH_BOUND]
    if in_graph >= launches:
        return "fuse it with its neighbours: it runs in a CUDA graph already"
    return (
        f"fuse it with its neighbours, or capture the {launches - in_graph:,} of its "
        f"{launches:,} launches in a CUDA graph that are not"
    )


def advise(
    limiter: Limiter, pipe: str | None, flags: tuple[Flag, ...], reuse: Reuse | None
) -> tuple[str, ...]:
    """Phrases in order of importance: specific flags first, the limiter's general one last."""
    phrases = [FLAG_ADVICE[flag] for flag in flags if flag in FLAG_ADVICE]
    if (
        Flag.L2_RESIDENT in flags
        and reuse is not Reuse.WITHIN
        and limiter is not Limiter.DRAM_BOUND
    ):
        phrases.append("the operands already sit in L2: fewer bytes win less than from DRAM")
    if limiter is Limiter.COMPUTE_BOUND and pipe is not None and pipe in PIPE_ADVICE:
        phrases.append(PIPE_ADVICE[pipe])
    else:
        phrases.append(LIMITER_ADVICE[limiter])
    return tuple(phrases)
