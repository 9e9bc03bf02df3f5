"""The vocabulary of `KernelProfile.metrics`: one key per quantity, its unit and its meaning.

How a key is spelled in a capture (raw names per architecture, labels per ncu release) is the
business of `profiling.metrics`; everything else in the project speaks only these keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STALL_REASONS = (
    "long_scoreboard",
    "short_scoreboard",
    "barrier",
    "wait",
    "math_pipe_throttle",
    "mio_throttle",
    "lg_throttle",
    "tex_throttle",
    "drain",
    "membar",
    "no_instruction",
    "imc_miss",
    "dispatch_stall",
    "branch_resolving",
    "sleeping",
    "misc",
    "gmma",
    "not_selected",
    "selected",
)
"""Warp states as ncu names them."""

PIPES = (
    *("tensor", "tc", "fma", "fmaheavy", "fp64", "alu", "xu", "fp16"),
    *("lsu", "uniform", "adu", "cbu", "tex", "tma"),
)
"""Execution pipes with a utilization key, `tensor_pipe_pct` or `pipe_<name>_pct`."""

OCCUPANCY_LIMITS = ("registers", "shared_memory", "blocks", "warps", "barriers")
"""Resources that cap the resident blocks, keys `occupancy_limit_<name>`."""


def pipe_key(pipe: str) -> str:
    """The metric key of a pipe's utilization."""
    return "tensor_pipe_pct" if pipe == "tensor" else f"pipe_{pipe}_pct"


METRICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        # throughput, percent of the sustained peak
        "sm_throughput_pct": ("%", "busiest SM pipe or issue slot over the elapsed time"),
        "memory_throughput_pct": ("%", "busiest of L1, L2, DRAM and fabric; not DRAM alone"),
        "dram_throughput_pct": ("%", "DRAM bandwidth used"),
        "l2_throughput_pct": ("%", "L2 slices' busiest unit"),
        "l1_throughput_pct": ("%", "L1/TEX and shared-memory unit, while SMs are active"),
        "l1_throughput_elapsed_pct": ("%", "the same over the elapsed time"),
        "tensor_pipe_elapsed_pct": ("%", "tensor pipe utilization over the elapsed time"),
        # traffic per launch
        "dram_bytes_read": ("bytes", "bytes read from DRAM"),
        "dram_bytes_written": ("bytes", "bytes written to DRAM (write-backs may come later)"),
        "dram_bytes": ("bytes", "DRAM bytes, both directions"),
        "dram_bytes_per_second": ("bytes/s", "DRAM traffic over the kernel's duration"),
        "l2_bytes_read": ("bytes", "bytes the SMs read from L2"),
        "l2_bytes_written": ("bytes", "bytes the SMs wrote to L2"),
        "l2_bytes": ("bytes", "all bytes between the SMs and L2"),
        "l2_fabric_bytes": ("bytes", "bytes between the two L2 partitions"),
        "l2_hit_rate_pct": ("%", "L2 sectors that hit"),
        "l2_read_sectors_hit": ("sectors", "L2 read look-ups that hit"),
        "l2_read_sectors_missed": ("sectors", "L2 read look-ups that missed"),
        "l1_hit_rate_pct": ("%", "L1/TEX sectors that hit"),
        # parallelism
        "achieved_occupancy_pct": ("%", "active warps over the SM's maximum, while active"),
        "theoretical_occupancy_pct": ("%", "what the launch's resources allow"),
        "registers_per_thread": ("registers", "registers a thread holds"),
        "shared_memory_static_bytes": ("bytes", "static shared memory a block"),
        "shared_memory_dynamic_bytes": ("bytes", "dynamic shared memory a block"),
        "shared_memory_bytes": ("bytes", "shared memory a block, static and dynamic together"),
        "estimated_occupancy_pct": ("%", "occupancy as a timeline estimates it from the launch"),
        "blocks_per_sm": ("blocks", "blocks of the launch over the SMs"),
        "warps_per_sm": ("warps", "warps of the launch over the SMs"),
        "occupancy_limit_registers": ("blocks", "resident blocks that registers allow"),
        "occupancy_limit_shared_memory": ("blocks", "resident blocks that shared memory allows"),
        "occupancy_limit_blocks": ("blocks", "resident blocks that the SM's block slots allow"),
        "occupancy_limit_warps": ("blocks", "resident blocks that the SM's warp slots allow"),
        "occupancy_limit_barriers": ("blocks", "resident blocks that barrier slots allow"),
        "waves_per_sm": ("waves", "grid size over what fits on the GPU at once"),
        "grid_size": ("blocks", "blocks of the launch"),
        "block_size": ("threads", "threads of a block"),
        "cluster_size": ("blocks", "blocks of a cluster"),
        "sm_count": ("SMs", "SMs the launch could use"),
        # time
        "sm_active_cycles": ("cycles", "cycles with work, mean over SMs"),
        "sm_active_cycles_max": ("cycles", "cycles with work, busiest SM"),
        "sm_active_cycles_min": ("cycles", "cycles with work, idlest SM"),
        "sm_elapsed_cycles": ("cycles", "SM cycles from start to end"),
        "sm_elapsed_cycles_total": ("cycles", "the same, summed over SMs"),
        "sm_frequency_hz": ("Hz", "SM clock while the kernel ran"),
        "dram_frequency_hz": ("Hz", "DRAM clock while the kernel ran"),
        # instructions
        "issue_active_pct": ("%", "cycles in which a scheduler issued"),
        "inst_executed": ("instructions", "warp instructions executed"),
        "warp_cycles_per_issue": ("cycles", "cycles a warp spends per issued instruction"),
        "eligible_warps": ("warps", "warps ready to issue, per scheduler"),
        "active_warps_per_scheduler": ("warps", "resident warps, per scheduler"),
        "threads_per_inst": ("threads", "threads active per executed warp instruction, of 32"),
        "threads_pred_on_per_inst": ("threads", "the same, not predicated off"),
        "branch_efficiency_pct": ("%", "branches whose threads all agree"),
        "divergent_branches": ("branches", "branches whose threads disagree"),
        "branch_inst_executed": ("instructions", "warp branch instructions"),
        "inst_conversion": ("threads", "thread-level type conversions"),
        "inst_integer": ("threads", "thread-level integer instructions"),
        "inst_bit": ("threads", "thread-level bit manipulations"),
        "inst_tensor": ("instructions", "warp-level tensor instructions"),
        "inst_alu": ("instructions", "warp instructions on the ALU pipe"),
        "inst_fma": ("instructions", "warp instructions on the FMA pipe"),
        "inst_xu": ("instructions", "warp instructions on the XU pipe"),
        # access patterns
        "global_load_bytes_per_sector": ("bytes", "bytes used of each 32-byte sector loaded"),
        "global_store_bytes_per_sector": ("bytes", "bytes used of each 32-byte sector stored"),
        "global_load_inst": ("instructions", "warp-level global loads"),
        "global_store_inst": ("instructions", "warp-level global stores"),
        "global_load_requests": ("requests", "global load requests at L1"),
        "global_load_sectors": ("sectors", "sectors of those requests"),
        "global_sectors": ("sectors", "sectors global accesses needed at L2, as executed"),
        "global_sectors_ideal": ("sectors", "the same for a perfectly packed access"),
        "global_sectors_excessive": ("sectors", "of those, beyond a perfectly packed access"),
        "shared_wavefronts": ("wavefronts", "shared-memory wavefronts"),
        "shared_wavefronts_ideal": ("wavefronts", "the same without bank conflicts"),
        "shared_wavefronts_excessive": ("wavefronts", "wavefronts that bank conflicts added"),
        "shared_pipe_wavefronts": ("wavefronts", "LSU data-stage wavefronts for shared memory"),
        "shared_bank_conflicts": ("conflicts", "raw conflict counter; non-zero on clean kernels"),
        "shared_load_inst": ("instructions", "warp-level shared loads"),
        "shared_store_inst": ("instructions", "warp-level shared stores"),
        "lsu_data_stage_pct": ("%", "LSU data stage (shared memory and L1) over the elapsed time"),
        "local_load_inst": ("instructions", "warp-level local-memory loads"),
        "local_store_inst": ("instructions", "warp-level local-memory stores"),
        "local_spill_requests": ("requests", "local-memory requests due to register spilling"),
        "local_spill_requests_pct": ("%", "share of spill requests in local+global requests"),
        "atomic_requests": ("requests", "global atomics that return a value, at L1"),
        "reduction_requests": ("requests", "global atomics without a return value, at L1"),
        "atomic_sectors": ("sectors", "their sectors at L2"),
        "reduction_sectors": ("sectors", "their sectors at L2"),
        "l2_atomic_unit_pct": ("%", "L2 atomic unit busy, mean over slices"),
        "replay_passes": ("passes", "passes ncu needed"),
        **{pipe_key(p): ("%", f"{p} pipe utilization while SMs are active") for p in PIPES},
        **{
            f"stall_{r}": ("warps", f"warps in state {r} per issued instruction")
            for r in STALL_REASONS
        },
        **{
            f"stall_{r}_pct": ("%", f"share of warp-active cycles in state {r}")
            for r in STALL_REASONS
        },
    }
)
"""Key -> (unit, meaning)."""
