"""The rules of the diagnosis, as data.

A rule names what it concludes, the conditions that must all hold, and why. Its `margins` are the
nearest kernels of the recorded H200 suite on either side of each threshold. A condition on a
quantity that the capture does not carry does not hold.

Limiter rules are tried in order and the first that holds decides; every flag rule is tried.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kernel_compass.analysis.rule_margins import MARGINS
from kernel_compass.analysis.utilization import BUSY_PCT, L1_BUSY_PCT
from kernel_compass.records.diagnosis import Flag, Limiter

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt}
)


@dataclass(frozen=True)
class Condition:
    """`quantity op threshold`, on the names of `analysis.quantities`."""

    quantity: str
    op: str
    threshold: float
    meaning: str
    unit: str = "%"
    span: float | None = None
    """Distance from the threshold from which on the condition is as sure as it gets; by default
    20 percentage points, or half of the threshold."""

    def holds(self, q: Mapping[str, float]) -> bool:
        """Whether the quantity is known and on the right side."""
        return self.quantity in q and _OPERATORS[self.op](q[self.quantity], self.threshold)

    def margin(self, q: Mapping[str, float]) -> float:
        """Relative distance to the threshold, 0 (on it) to 1 (as far as it gets)."""
        value = q[self.quantity]
        span = self.span or (20.0 if self.unit == "%" else max(abs(self.threshold) / 2.0, 1e-9))
        return max(0.0, min(abs(value - self.threshold) / span, 1.0))


@dataclass(frozen=True)
class LimiterRule:
    """All `conditions` hold -> `limiter`; the first condition is the deciding one."""

    name: str
    limiter: Limiter
    conditions: tuple[Condition, ...]
    reason: str

    @property
    def margins(self) -> Mapping[str, tuple[float | None, float | None]]:
        """Condition -> (nearest failing, nearest passing) value of the recorded kernels."""
        return MARGINS.get(self.name, {})


@dataclass(frozen=True)
class FlagRule:
    """All `conditions` hold, and the limiter is one of `limiters` where given -> `flag`."""

    name: str
    flag: Flag
    conditions: tuple[Condition, ...]
    reason: str
    limiters: frozenset[Limiter] | None = None

    @property
    def margins(self) -> Mapping[str, tuple[float | None, float | None]]:
        """Condition -> (nearest failing, nearest passing) value of the recorded kernels."""
        return MARGINS.get(self.name, {})


_IDLE_LEVELS = Condition("busiest_level_pct", "<", BUSY_PCT, "no level is busy")

LIMITER_RULES: tuple[LimiterRule, ...] = (
    LimiterRule(
        "short_and_idle",
        Limiter.LAUNCH_BOUND,
        (
            Condition(
                "duration_us",
                "<=",
                4.5,
                "within three times ncu's 1.5 us for an empty kernel",
                "us",
            ),
            _IDLE_LEVELS,
        ),
        "A launch's fixed cost dominates. A suspicion until a timeline shows the gaps: ncu "
        "serialises launches and sees none.",
    ),
    LimiterRule(
        "short_and_nothing_known_busy",
        Limiter.LAUNCH_BOUND,
        (
            Condition(
                "duration_us",
                "<=",
                4.5,
                "within three times ncu's 1.5 us for an empty kernel",
                "us",
            ),
            Condition("busiest_known_level_pct", "<", BUSY_PCT, "no known level is busy"),
        ),
        "So short that the fixed cost dominates whatever the levels do that were not collected.",
    ),
    LimiterRule(
        "arithmetic_busy",
        Limiter.COMPUTE_BOUND,
        (
            Condition("compute_pct", ">=", BUSY_PCT, "arithmetic pipes or issue slots are busy"),
            Condition("compute_over_dram_pct", ">=", 0.0, "busier than DRAM"),
            Condition("compute_over_l2_pct", ">=", -10.0, "not clearly behind L2", span=10.0),
            Condition("compute_over_l1_pct", ">=", -10.0, "not clearly behind L1", span=10.0),
        ),
        "SM throughput alone can be the load/store or barrier unit; it counts as compute only as "
        "far as an arithmetic pipe or the issue slots back it. Tensor-core GEMMs keep L1 as busy "
        "as the tensor pipe, so L1 must lead clearly to win.",
    ),
    LimiterRule(
        "dram_busy",
        Limiter.DRAM_BOUND,
        (
            Condition("dram_throughput_pct", ">=", BUSY_PCT, "DRAM bandwidth is busy"),
            Condition("dram_over_compute_pct", ">", 0.0, "busier than arithmetic"),
        ),
        "A busy DRAM comes before a busier L2: every DRAM byte passes L2 too.",
    ),
    LimiterRule(
        "l1_busy",
        Limiter.L1_BOUND,
        (
            Condition("l1_throughput_pct", ">=", L1_BUSY_PCT, "the L1/shared-memory pipe is busy"),
            Condition("l2_over_l1_pct", "<", 0.0, "busier than L2"),
        ),
        "L1 throughput over the elapsed time. Well-fed GEMMs with low-bit weights reach 45-55 %, "
        "kernels bound by the pipe over 80 %.",
    ),
    LimiterRule(
        "l2_busy",
        Limiter.L2_BOUND,
        (
            Condition("l2_throughput_pct", ">=", BUSY_PCT, "L2 is busy"),
            Condition("dram_throughput_pct", "<", BUSY_PCT, "DRAM is known not to be"),
        ),
        "DRAM is not, so L2 or the fabric between its partitions serves the bytes.",
    ),
    LimiterRule(
        "arithmetic_busy_while_active",
        Limiter.COMPUTE_BOUND,
        (
            Condition("issue_active_pct", ">=", 80.0, "issue slots are full while SMs have work"),
            Condition("compute_pct", ">=", 30.0, "and that is much of the kernel"),
            _IDLE_LEVELS,
        ),
        "Where a partial last wave leaves SMs idle, the elapsed average hides a saturated pipe.",
    ),
    LimiterRule(
        "waiting_at_barriers",
        Limiter.LATENCY_BOUND,
        (
            Condition("stall_barrier_share_pct", ">=", 40.0, "warps wait at block barriers"),
            _IDLE_LEVELS,
        ),
        "Nothing is saturated and warps wait for their siblings.",
    ),
    LimiterRule(
        "few_instructions_issued",
        Limiter.LATENCY_BOUND,
        (
            Condition("issue_active_pct", "<=", 55.0, "schedulers have nothing ready to issue"),
            _IDLE_LEVELS,
        ),
        "Schedulers idle although no level is saturated: too few warps, or all of them waiting.",
    ),
    LimiterRule(
        "waiting_for_results",
        Limiter.LATENCY_BOUND,
        (
            Condition(
                "stall_dependency_share_pct", ">=", 50.0, "warps wait for earlier instructions"
            ),
            _IDLE_LEVELS,
        ),
        "Nothing is saturated and most of the warps' time goes into dependencies.",
    ),
    LimiterRule(
        "few_warps",
        Limiter.LATENCY_BOUND,
        (
            Condition("achieved_occupancy_pct", "<=", 30.0, "few warps are resident"),
            _IDLE_LEVELS,
        ),
        "Nothing is saturated and there are few warps to hide latency with.",
    ),
    LimiterRule(
        "few_blocks",
        Limiter.LATENCY_BOUND,
        (
            Condition("blocks_per_sm", "<", 1.0, "fewer blocks than SMs", "blocks"),
            _IDLE_LEVELS,
        ),
        "Nothing is saturated and some SMs have no block.",
    ),
)

_SLOW_PATH = frozenset({Limiter.LATENCY_BOUND, Limiter.UNCLASSIFIED})


_UNPACKING = frozenset(
    {
        Limiter.COMPUTE_BOUND,
        Limiter.LATENCY_BOUND,
        Limiter.L1_BOUND,
        Limiter.L2_BOUND,
        Limiter.UNCLASSIFIED,
    }
)
"""Where a busy unpacking unit can be what costs the time."""


def _occupancy_rule(resource: str, flag: Flag) -> FlagRule:
    return FlagRule(
        f"occupancy_limited_by_{resource}",
        flag,
        (
            Condition("theoretical_occupancy_pct", "<=", 60.0, "of the warps fit at most"),
            Condition(f"limited_by_{resource}", ">=", 1.0, f"{resource} run out first", "bool"),
        ),
        "The resource with the smallest block limit caps the resident warps.",
        _SLOW_PATH,
    )


FLAG_RULES: tuple[FlagRule, ...] = (
    FlagRule(
        "low_occupancy",
        Flag.LOW_OCCUPANCY,
        (Condition("achieved_occupancy_pct", "<=", 30.0, "few warps hide latency"),),
        "A finding only where latency matters: a GEMM at the tensor peak runs at 15 %.",
        _SLOW_PATH,
    ),
    _occupancy_rule("registers", Flag.OCCUPANCY_LIMITED_BY_REGISTERS),
    _occupancy_rule("shared_memory", Flag.OCCUPANCY_LIMITED_BY_SHARED_MEMORY),
    _occupancy_rule("blocks", Flag.OCCUPANCY_LIMITED_BY_BLOCKS),
    _occupancy_rule("warps", Flag.OCCUPANCY_LIMITED_BY_WARPS),
    _occupancy_rule("barriers", Flag.OCCUPANCY_LIMITED_BY_BARRIERS),
    FlagRule(
        "uncoalesced",
        Flag.UNCOALESCED,
        (
            Condition("global_excess_pct", ">=", 50.0, "of the sectors moved carry unused bytes"),
            Condition(
                "global_sector_bytes", ">=", float(1 << 20), "over traffic worth it", "bytes"
            ),
        ),
        "Half or more of the global sectors would not be needed by a packed access.",
    ),
    FlagRule(
        "bank_conflicts",
        Flag.BANK_CONFLICTS,
        (
            Condition("shared_excess_pct", ">=", 25.0, "of the shared wavefronts are conflicts"),
            Condition("l1_throughput_pct", ">=", 40.0, "and the pipe they occupy is in use"),
        ),
        "Excess wavefronts over the conflict-free count; the raw conflict counter is not zero on "
        "clean kernels and is not used.",
    ),
    FlagRule(
        "local_memory_instructions",
        Flag.REGISTER_SPILLS,
        (Condition("local_inst_pct", ">=", 1.0, "of the instructions access local memory"),),
        "Spilled or run-time-indexed registers live in local memory.",
    ),
    FlagRule(
        "spill_requests",
        Flag.REGISTER_SPILLS,
        (Condition("spill_inst_pct", ">=", 1.0, "of the instructions are spills"),),
        "ncu counts spill requests from the code itself; a prologue's few cost nothing.",
    ),
    FlagRule(
        "tail_effect",
        Flag.TAIL_EFFECT,
        (
            Condition("sm_idle_beyond_launch_pct", ">=", 8.0, "of the SM time idles"),
            Condition("wave_rounding_pct", ">=", 10.0, "the last wave is far from full"),
            Condition("waves", ">", 1.0, "after at least one full wave", "waves"),
        ),
        "Flagged where it costs: SMs idle beyond what a launch takes anyway.",
    ),
    FlagRule(
        "small_grid",
        Flag.SMALL_GRID,
        (Condition("blocks_per_sm", "<", 1.0, "fewer blocks than SMs", "blocks"),),
        "Some SMs never get work.",
    ),
    FlagRule(
        "atomic_contention",
        Flag.ATOMIC_CONTENTION,
        (
            Condition("atomic_share_of_l2_pct", ">=", 50.0, "of the L2 requests are atomics"),
            Condition("atomic_ops_per_us", ">=", 100.0, "a steady stream of them", "ops/us"),
            Condition("atomic_ops_per_us", "<=", 20000.0, "at the pace of few addresses", "ops/us"),
            _IDLE_LEVELS,
        ),
        "One address takes about one operation in 1.5 to 3.5 cycles (measured: 570-1,360 per us on "
        "an H200); atomics spread over addresses run a hundred times faster and load L2.",
        _SLOW_PATH,
    ),
    FlagRule(
        "barrier_stalls",
        Flag.BARRIER_STALLS,
        (
            Condition(
                "stall_barrier_share_pct", ">=", 40.0, "of the warps' time is spent at barriers"
            ),
        ),
        "GEMMs at the tensor peak spend up to 32 % there without harm.",
    ),
    FlagRule(
        "divergence",
        Flag.DIVERGENCE,
        (
            Condition(
                "threads_per_inst", "<=", 26.0, "threads of 32 active an instruction", "threads"
            ),
            Condition("branch_efficiency_pct", "<=", 99.9, "of the branches agree in the warp"),
            Condition("threads_of_last_warp", "<", 1.0, "blocks of whole warps", "threads"),
        ),
        "Idle lanes without divergent branches are a launch shape, not divergence.",
    ),
    FlagRule(
        "dequant_on_xu",
        Flag.DEQUANT_BOUND,
        (
            Condition("xu_active_pct", ">=", 30.0, "XU busy"),
            Condition("conversions_of_xu_pct", ">=", 60.0, "of its work are type conversions"),
            Condition("attention_name", "<", 1.0, "not an attention kernel", "bool"),
        ),
        "Integer-to-float conversions of unpacked weights run on XU at a quarter of the rate.",
        _UNPACKING,
    ),
    FlagRule(
        "dequant_by_name",
        Flag.DEQUANT_BOUND,
        (
            Condition("unpack_active_pct", ">=", 30.0, "ALU or XU busy with unpacking"),
            Condition("low_bit_name", ">=", 1.0, "in a kernel named for low-bit weights", "bool"),
        ),
        "Without tensor or conversion counters the mix alone is not proof; the name adds what "
        "is missing.",
        _UNPACKING,
    ),
    FlagRule(
        "dequant_beside_tensor",
        Flag.DEQUANT_BOUND,
        (
            Condition("unpack_active_pct", ">=", 18.0, "ALU or XU busy with unpacking"),
            Condition("unpack_per_tensor", ">=", 0.9, "times as busy as the tensor pipe", "ratio"),
            Condition("tensor_active_pct", ">=", 2.0, "in a tensor-core kernel"),
            Condition("attention_name", "<", 1.0, "not an attention kernel", "bool"),
        ),
        "A 16-bit GEMM keeps ALU and XU under 10 % beside its tensor pipe.",
        _UNPACKING,
    ),
)
