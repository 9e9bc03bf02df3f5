"""Which metrics to ask ncu for, one explicit list per architecture.

A list names only what the chip has: an absent name comes back as `n/a`, and a name of the wrong
kind (`derived__...`) makes ncu end the program. Differences between chips are those of
`ncu --query-metrics` of 2025.3; sm_70, which that release no longer knows, follows 2024.1, and
sm_87 follows sm_86 without the DRAM counters, which integrated GPUs lack.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kernel_compass.profiling.metrics import DEVICE_NAMES
from kernel_compass.records.counters import L2_SECTORS_READ
from kernel_compass.records.metrics import OCCUPANCY_LIMITS, STALL_REASONS

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"

ARCHITECTURES = (
    *("7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0"),
    *("10.0", "10.3", "11.0", "12.0", "12.1"),
)
"""Compute capabilities with a list of their own."""

OLDEST = "7.0"
"""Nsight Compute profiles no older GPU."""

_INTEGRATED = frozenset(("8.7", "11.0", "12.1"))
_TWO_L2_PARTITIONS = frozenset(("8.0", "9.0", "10.0", "10.3"))
_FP16_PIPE = frozenset(("7.0", "7.5", "8.0"))
_TENSOR_CORE_GEN5 = frozenset(("10.0", "10.3", "11.0"))

SASS_METRICS = (
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "smsp__sass_thread_inst_executed_op_conversion_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_integer_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_bit_pred_on.sum",
    "smsp__sass_average_branch_targets_threads_uniform.pct",
    "smsp__sass_branch_targets_threads_divergent.sum",
)
"""Counted by patched instructions: together one pass, in which the kernel is slow."""

SOURCE_METRICS = (
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
)
"""Wavefronts and sectors next to what a conflict-free, packed access would need."""
SOURCE_METRICS_SINCE = (2025, 3)
"""The ncu release from which these were seen to be collected by name; a name that a release
cannot collect makes it end the program, so older ones are not asked."""

_DURATION = "gpu__time_duration.sum"

_THROUGHPUTS = (
    "sm__throughput" + _ELAPSED,
    "gpu__compute_memory_throughput" + _ELAPSED,
    "lts__throughput" + _ELAPSED,
    "l1tex__throughput" + _ACTIVE,
    "sm__inst_issued" + _ACTIVE,
    "smsp__issue_active" + _ACTIVE,
)
_CACHES = (
    "lts__t_sector_hit_rate.pct",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sectors_op_read_lookup_hit.sum",
    "lts__t_sectors_op_read_lookup_miss.sum",
    "l1tex__t_sector_hit_rate.pct",
)
_PIPES = (
    *(f"sm__pipe_{pipe}_cycles_active" + _ACTIVE for pipe in ("alu", "fma", "fp64")),
    *(f"sm__inst_executed_pipe_{p}" + _ACTIVE for p in ("adu", "cbu", "lsu", "tex", "xu")),
    *(f"sm__inst_executed_pipe_{p}.sum" for p in ("tensor", "alu", "fma", "xu")),
)
_OCCUPANCY = (
    "sm__warps_active" + _ACTIVE,
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__warps_active.avg.per_cycle_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__average_warp_latency_per_inst_issued.ratio",
)
_TIME = (
    *(f"sm__cycles_active.{rollup}" for rollup in ("avg", "max", "min")),
    "sm__cycles_elapsed.max",
    "sm__cycles_elapsed.sum",
    "gpc__cycles_elapsed.avg.per_second",
)
_INSTRUCTIONS = (
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "smsp__inst_executed_op_branch.sum",
    *(
        f"smsp__inst_executed_op_{space}_{op}.sum"
        for space in ("global", "shared", "local")
        for op in ("ld", "st")
    ),
)
_ACCESSES = (
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__d_atomic_input_cycles_active" + _ELAPSED,
    "l1tex__data_pipe_lsu_wavefronts" + _ELAPSED,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
)
_LAUNCH = (
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__waves_per_multiprocessor",
    "launch__sm_count",
    "profiler__replayer_passes",
    *DEVICE_NAMES.values(),
)


def architecture_of(compute_capability: str) -> str:
    """The newest architecture with a list that is not newer than the GPU, at least sm_70."""
    mine = _number(compute_capability)
    older = [cc for cc in ARCHITECTURES if _number(cc) <= mine]
    return older[-1] if older else OLDEST


def is_supported(compute_capability: str) -> bool:
    """Whether Nsight Compute can profile this GPU at all."""
    return _number(compute_capability) >= _number(OLDEST)


def metric_list(compute_capability: str) -> tuple[str, ...]:
    """Everything a diagnosis uses, by raw ncu name.

    Args:
        compute_capability: `major.minor`, e.g. `9.0`; for a newer GPU without a list of its
            own, the nearest older one is taken.
    """
    cc = architecture_of(compute_capability)
    parts = (
        *(residency_list(cc), _dram(cc)[2:], _THROUGHPUTS, _CACHES, _fabric(cc), _PIPES),
        *(_pipes(cc), _stalls(cc), _OCCUPANCY, _TIME, _INSTRUCTIONS, _ACCESSES),
        *(_LAUNCH, _limits(cc), SASS_METRICS),
    )
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def residency_list(compute_capability: str) -> tuple[str, ...]:
    """What tells where the bytes came from: duration, DRAM bytes, L2 reads and hits."""
    return (*one_pass_list(compute_capability), "lts__t_sector_hit_rate.pct")


def one_pass_list(compute_capability: str) -> tuple[str, ...]:
    """The part of `residency_list` that one pass collects (seen on sm_90); no L2 hit rate."""
    dram = _dram(architecture_of(compute_capability))
    return (_DURATION, *dram[:3], L2_SECTORS_READ)


def source_metrics(ncu_version: str | None) -> tuple[str, ...]:
    """`SOURCE_METRICS` where this ncu collects them by name, else nothing."""
    major, _, rest = (ncu_version or "0").partition(".")
    minor = rest.partition(".")[0]
    known = major.isdigit() and minor.isdigit()
    return SOURCE_METRICS if known and (int(major), int(minor)) >= SOURCE_METRICS_SINCE else ()


def union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All names of several lists, each once, in order of first appearance."""
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


def _number(compute_capability: str) -> tuple[int, int]:
    major, _, minor = compute_capability.partition(".")
    return int(major), int(minor or 0)


def _dram(cc: str) -> tuple[str, ...]:
    """DRAM counters: read, written, throughput (these three take one pass), then the rest."""
    if cc in _INTEGRATED:
        return ()
    op = "op_" if cc == "12.0" else ""
    return (
        f"dram__bytes_{op}read.sum",
        f"dram__bytes_{op}write.sum",
        "gpu__dram_throughput" + _ELAPSED,
        "dram__throughput" + _ELAPSED,
        "dram__bytes.sum",
        "dram__cycles_elapsed.avg.per_second",
    )


def _fabric(cc: str) -> tuple[str, ...]:
    return ("lts__t_sectors_srcunit_ltcfabric.sum",) if cc in _TWO_L2_PARTITIONS else ()


def _pipes(cc: str) -> tuple[str, ...]:
    names = ["sm__pipe_tensor_cycles_active"]
    if cc == "8.9":
        names = ["sm__pipe_tensor_cycles_active_v2"]
    if cc in _TENSOR_CORE_GEN5:
        names.append("sm__pipe_tc_cycles_active")
    fp16 = "fp16" if cc in _FP16_PIPE else "fma_type_fp16"
    names.append(f"sm__inst_executed_pipe_{fp16}")
    if _number(cc) >= (7, 5):
        names.append("sm__inst_executed_pipe_uniform")
    if _number(cc) >= (8, 6):
        names.append("sm__pipe_fmaheavy_cycles_active")
    if _number(cc) >= (9, 0):
        names.append("sm__inst_executed_pipe_tma")
    return tuple(name + _ACTIVE for name in names)


def _stalls(cc: str) -> tuple[str, ...]:
    absent = set()
    if cc != "9.0":
        absent.add("gmma")
    if _number(cc) >= (10, 0):
        absent.add("imc_miss")
    return tuple(
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        for reason in STALL_REASONS
        if reason not in absent
    )


def _limits(cc: str) -> tuple[str, ...]:
    from_hopper = _number(cc) >= (9, 0)
    spelled = {"shared_memory": "shared_mem"}
    limits = [x for x in OCCUPANCY_LIMITS if from_hopper or x != "barriers"]
    names = [f"launch__occupancy_limit_{spelled.get(x, x)}" for x in limits]
    return (*names, "launch__cluster_size") if from_hopper else tuple(names)
