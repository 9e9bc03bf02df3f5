"""How the metric keys are spelled by Nsight Compute: raw names per architecture, page labels.

Sources: `ncu --query-metrics` of 2025.3 (tu102 ... gb202), the 2019-2026 details pages, the
Nsight Compute profiling guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernel_compass.records.counters import L2_SECTORS_READ, SECTOR_BYTES
from kernel_compass.records.metrics import STALL_REASONS

"""One L2/L1 sector; ncu counts most cache traffic in sectors."""

DURATION_NAMES = ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")
DURATION_LABELS = ("Duration",)

_PCT_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_PCT_ACTIVE = ".avg.pct_of_peak_sustained_active"


@dataclass(frozen=True)
class Spelling:
    """How one metric key appears in captures.

    `names` are raw metric names in order of preference; `labels` are details-page labels, with
    the unit kind (`%`, `bytes/s`, ...) where one label means two things.
    """

    key: str
    names: tuple[str, ...]
    labels: tuple[tuple[str, str | None], ...] = ()
    factor: float = 1.0


def _s(
    key: str,
    *names: str,
    labels: tuple[str | tuple[str, str], ...] = (),
    factor: float = 1.0,
) -> Spelling:
    pairs = tuple((x, None) if isinstance(x, str) else x for x in labels)
    return Spelling(key, names, pairs, factor)


def _throughputs() -> Iterator[Spelling]:
    yield _s(
        "sm_throughput_pct",
        "sm__throughput" + _PCT_ELAPSED,
        labels=("Compute (SM) Throughput", "Compute (SM) [%]", "SM [%]", "SOL SM"),
    )
    yield _s(
        "memory_throughput_pct",
        "gpu__compute_memory_throughput" + _PCT_ELAPSED,
        labels=(("Memory Throughput", "%"), "Memory [%]", "SOL Memory"),
    )
    yield _s(
        "dram_throughput_pct",
        "gpu__dram_throughput" + _PCT_ELAPSED,
        "dram__throughput" + _PCT_ELAPSED,
        labels=("DRAM Throughput", "SOL FB", "SOL DRAM"),
    )
    yield _s(
        "l2_throughput_pct",
        "lts__throughput" + _PCT_ELAPSED,
        labels=("L2 Cache Throughput", "SOL L2", "SOL L2 Cache"),
    )
    yield _s(
        "l1_throughput_pct",
        "l1tex__throughput" + _PCT_ACTIVE,
        labels=("L1/TEX Cache Throughput", "SOL TEX", "SOL L1/TEX Cache"),
    )
    yield _s("l1_throughput_elapsed_pct", "l1tex__throughput" + _PCT_ELAPSED)


def _traffic() -> Iterator[Spelling]:
    yield _s("dram_bytes_read", "dram__bytes_read.sum", "dram__bytes_op_read.sum")
    yield _s("dram_bytes_written", "dram__bytes_write.sum", "dram__bytes_op_write.sum")
    yield _s("dram_bytes", "dram__bytes.sum")
    yield _s(
        "dram_bytes_per_second",
        "dram__bytes.sum.per_second",
        labels=(("Memory Throughput", "bytes/s"),),
    )
    yield _s("l2_bytes_read", L2_SECTORS_READ, factor=SECTOR_BYTES)
    yield _s("l2_bytes_written", "lts__t_sectors_srcunit_tex_op_write.sum", factor=SECTOR_BYTES)
    yield _s("l2_bytes", "lts__t_sectors_srcunit_tex.sum", factor=SECTOR_BYTES)
    yield _s("l2_fabric_bytes", "lts__t_sectors_srcunit_ltcfabric.sum", factor=SECTOR_BYTES)
    yield _s("l2_hit_rate_pct", "lts__t_sector_hit_rate.pct", labels=("L2 Hit Rate",))
    yield _s("l2_read_sectors_hit", "lts__t_sectors_op_read_lookup_hit.sum")
    yield _s("l2_read_sectors_missed", "lts__t_sectors_op_read_lookup_miss.sum")
    yield _s(
        "l1_hit_rate_pct", "l1tex__t_sector_hit_rate.pct", labels=("L1/TEX Hit Rate", "L1 Hit Rate")
    )


def _parallelism() -> Iterator[Spelling]:
    yield _s(
        "achieved_occupancy_pct",
        "sm__warps_active" + _PCT_ACTIVE,
        labels=("Achieved Occupancy",),
    )
    yield _s(
        "theoretical_occupancy_pct",
        "sm__maximum_warps_per_active_cycle_pct",
        labels=("Theoretical Occupancy",),
    )
    yield _s(
        "registers_per_thread", "launch__registers_per_thread", labels=("Registers Per Thread",)
    )
    yield _s(
        "shared_memory_static_bytes",
        "launch__shared_mem_per_block_static",
        labels=("Static Shared Memory Per Block",),
    )
    yield _s(
        "shared_memory_dynamic_bytes",
        "launch__shared_mem_per_block_dynamic",
        labels=("Dynamic Shared Memory Per Block",),
    )
    for key, name, label in (
        ("registers", "registers", "Block Limit Registers"),
        ("shared_memory", "shared_mem", "Block Limit Shared Mem"),
        ("blocks", "blocks", "Block Limit SM"),
        ("warps", "warps", "Block Limit Warps"),
        ("barriers", "barriers", "Block Limit Barriers"),
    ):
        yield _s(f"occupancy_limit_{key}", f"launch__occupancy_limit_{name}", labels=(label,))
    yield _s("waves_per_sm", "launch__waves_per_multiprocessor", labels=("Waves Per SM",))
    yield _s("grid_size", "launch__grid_size", labels=("Grid Size",))
    yield _s("block_size", "launch__block_size", labels=("Block Size",))
    yield _s("cluster_size", "launch__cluster_size", labels=("Cluster Size",))
    yield _s("sm_count", "launch__sm_count", labels=("# SMs",))


def _time() -> Iterator[Spelling]:
    yield _s(
        "sm_active_cycles",
        "sm__cycles_active.avg",
        labels=("SM Active Cycles", "Average SM Active Cycles"),
    )
    yield _s("sm_active_cycles_max", "sm__cycles_active.max")
    yield _s("sm_active_cycles_min", "sm__cycles_active.min")
    yield _s(
        "sm_elapsed_cycles",
        "gpc__cycles_elapsed.max",
        "sm__cycles_elapsed.max",
        "sm__cycles_elapsed.avg",
        labels=("Elapsed Cycles",),
    )
    yield _s(
        "sm_elapsed_cycles_total", "sm__cycles_elapsed.sum", labels=("Total SM Elapsed Cycles",)
    )
    yield _s(
        "sm_frequency_hz",
        "gpc__cycles_elapsed.avg.per_second",
        "smsp__cycles_elapsed.avg.per_second",
        labels=("SM Frequency",),
    )
    yield _s(
        "dram_frequency_hz",
        "dram__cycles_elapsed.avg.per_second",
        labels=("DRAM Frequency", "Memory Frequency"),
    )


def _instructions() -> Iterator[Spelling]:
    yield _s(
        "issue_active_pct",
        "smsp__issue_active" + _PCT_ACTIVE,
        "sm__inst_issued" + _PCT_ACTIVE,
        labels=("One or More Eligible",),
    )
    yield _s("inst_executed", "smsp__inst_executed.sum", labels=("Executed Instructions",))
    yield _s(
        "warp_cycles_per_issue",
        "smsp__average_warp_latency_per_inst_issued.ratio",
        labels=("Warp Cycles Per Issued Instruction",),
    )
    yield _s(
        "eligible_warps",
        "smsp__warps_eligible.avg.per_cycle_active",
        labels=("Eligible Warps Per Scheduler",),
    )
    yield _s(
        "active_warps_per_scheduler",
        "smsp__warps_active.avg.per_cycle_active",
        labels=("Active Warps Per Scheduler",),
    )
    yield _s(
        "threads_per_inst",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
        labels=("Avg. Active Threads Per Warp",),
    )
    yield _s(
        "threads_pred_on_per_inst",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
        labels=("Avg. Not Predicated Off Threads Per Warp",),
    )
    yield _s(
        "branch_efficiency_pct",
        "smsp__sass_average_branch_targets_threads_uniform.pct",
        labels=("Branch Efficiency",),
    )
    yield _s("divergent_branches", "smsp__sass_branch_targets_threads_divergent.sum")
    yield _s(
        "branch_inst_executed",
        "smsp__inst_executed_op_branch.sum",
        labels=("Branch Instructions",),
    )
    for kind in ("conversion", "integer", "bit"):
        yield _s(f"inst_{kind}", f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum")
    yield _s("inst_tensor", "sm__inst_executed_pipe_tensor.sum")
    for pipe in ("alu", "fma", "xu"):
        yield _s(
            f"inst_{pipe}",
            f"sm__inst_executed_pipe_{pipe}.sum",
            f"smsp__inst_executed_pipe_{pipe}.sum",
        )


def _access_patterns() -> Iterator[Spelling]:
    per_sector = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"
    yield _s("global_load_bytes_per_sector", per_sector.format("ld"))
    yield _s("global_store_bytes_per_sector", per_sector.format("st"))
    for op, key in (("ld", "load"), ("st", "store")):
        for space in ("global", "shared", "local"):
            yield _s(
                f"{space}_{key}_inst",
                f"smsp__sass_inst_executed_op_{space}_{op}.sum",
                f"smsp__inst_executed_op_{space}_{op}.sum",
            )
    yield _s("global_load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    yield _s("global_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    yield _s("global_sectors", "memory_l2_theoretical_sectors_global")
    yield _s("global_sectors_ideal", "memory_l2_theoretical_sectors_global_ideal")
    yield _s("global_sectors_excessive", "derived__memory_l2_theoretical_sectors_global_excessive")
    yield _s("shared_wavefronts", "memory_l1_wavefronts_shared")
    yield _s("shared_wavefronts_ideal", "memory_l1_wavefronts_shared_ideal")
    yield _s("shared_wavefronts_excessive", "derived__memory_l1_wavefronts_shared_excessive")
    yield _s("shared_pipe_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    yield _s("shared_bank_conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    yield _s("lsu_data_stage_pct", "l1tex__data_pipe_lsu_wavefronts" + _PCT_ELAPSED)
    yield _s(
        "local_spill_requests",
        "derived__local_spilling_requests",
        "sass__inst_executed_register_spilling",
        labels=("Local Memory Spilling Requests",),
    )
    yield _s(
        "local_spill_requests_pct",
        "derived__local_spilling_requests_pct",
        labels=("Local Memory Spilling Request Overhead",),
    )
    yield _s("atomic_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum")
    yield _s("reduction_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum")
    yield _s(
        "atomic_sectors", "lts__t_sectors_srcunit_tex_op_atom.sum", "lts__t_sectors_op_atom.sum"
    )
    yield _s(
        "reduction_sectors", "lts__t_sectors_srcunit_tex_op_red.sum", "lts__t_sectors_op_red.sum"
    )
    yield _s("l2_atomic_unit_pct", "lts__d_atomic_input_cycles_active" + _PCT_ELAPSED)
    yield _s("replay_passes", "profiler__replayer_passes")


def _pipes() -> Iterator[Spelling]:
    yield _s(
        "tensor_pipe_pct",
        "sm__pipe_tensor_cycles_active" + _PCT_ACTIVE,
        "sm__pipe_tensor_cycles_active_v2" + _PCT_ACTIVE,
        "sm__inst_executed_pipe_tensor" + _PCT_ACTIVE,
    )
    yield _s("tensor_pipe_elapsed_pct", "sm__pipe_tensor_cycles_active" + _PCT_ELAPSED)
    for pipe in ("tc", "fma", "fmaheavy", "alu", "fp64"):
        yield _s(
            f"pipe_{pipe}_pct",
            f"sm__pipe_{pipe}_cycles_active" + _PCT_ACTIVE,
            f"sm__inst_executed_pipe_{pipe}" + _PCT_ACTIVE,
        )
    yield _s(
        "pipe_fp16_pct",
        "sm__inst_executed_pipe_fp16" + _PCT_ACTIVE,
        "sm__inst_executed_pipe_fma_type_fp16" + _PCT_ACTIVE,
    )
    for pipe in ("xu", "lsu", "uniform", "adu", "cbu", "tex", "tma"):
        yield _s(f"pipe_{pipe}_pct", f"sm__inst_executed_pipe_{pipe}" + _PCT_ACTIVE)


def _stalls() -> Iterator[Spelling]:
    for reason in STALL_REASONS:
        yield _s(
            f"stall_{reason}",
            f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",
            f"smsp__average_warp_latency_issue_stalled_{reason}.ratio",
        )
        yield _s(f"stall_{reason}_pct", f"smsp__warp_issue_stalled_{reason}_per_warp_active.pct")


SPELLINGS: tuple[Spelling, ...] = (
    *_throughputs(),
    *_traffic(),
    *_parallelism(),
    *_time(),
    *_instructions(),
    *_access_patterns(),
    *_pipes(),
    *_stalls(),
)
"""Every key's spellings."""

BY_NAME: Mapping[str, tuple[Spelling, int]] = MappingProxyType(
    {name: (s, rank) for s in SPELLINGS for rank, name in enumerate(s.names)}
)
"""Raw name -> (spelling, rank of this name among the spelling's names; 0 is preferred)."""

BY_LABEL: Mapping[str, tuple[tuple[str | None, Spelling], ...]] = MappingProxyType(
    {
        label: tuple((kind, s) for s in SPELLINGS for lab, kind in s.labels if lab == label)
        for label in {lab for s in SPELLINGS for lab, _ in s.labels}
    }
)
"""Details-page label -> (unit kind or None, spelling)."""

DEVICE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "name": "device__attribute_display_name",
        "sm_count": "device__attribute_multiprocessor_count",
        "l2_bytes": "device__attribute_l2_cache_size",
    }
)
"""`Device` fields -> raw-page columns."""
