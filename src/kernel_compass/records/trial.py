"""One try at a workload: what was proposed, what was found, and the verdict with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernel_compass.records.comparison import Interval
from kernel_compass.records.contracts import Config, ConfigKey, config_key
from kernel_compass.records.profile import Regime


class Action(StrEnum):
    """What a proposal changes."""

    IMPLEMENTATION = "implementation"
    """Another way to compute the same, in the same number format."""
    PRECISION = "precision"
    """Another number format."""
    TILE = "tile"
    SPLIT_K = "split_k"
    SWAP_OPERANDS = "swap_operands"
    STAGES = "stages"
    WARPS = "warps"
    PERSISTENT = "persistent"
    VECTOR_WIDTH = "vector_width"
    FUSION = "fusion"
    GRAPH_CAPTURE = "graph_capture"
    CONFIG = "config"
    """Another point of the space, for no single dimension's sake."""


class Outcome(StrEnum):
    """How a trial ended."""

    ACCEPTED = "accepted"
    SCREENED = "screened"
    """It passed the screen, in one process; only a hold-out accepts."""
    REJECTED = "rejected"
    """It was judged, and did not pass."""
    FAILED = "failed"
    """It could not be judged."""


class Reason(StrEnum):
    """Why a trial was not accepted; the list is closed."""

    # 1 builds, fits
    BUILD_FAILED = "build_failed"
    COMPILE_TIMEOUT = "compile_timeout"
    DOES_NOT_FIT = "does_not_fit"
    """Registers, shared memory or threads beyond the device."""
    NOT_SUPPORTED = "not_supported"
    """The implementation refuses the workload."""
    # the process it ran in
    RUN_TIMEOUT = "run_timeout"
    ILLEGAL_ACCESS = "illegal_access"
    CRASHED = "crashed"
    """The process ended by a signal or without an answer."""
    EXITED = "exited"
    """The candidate ended the process."""
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    RAISED = "raised"
    # 2 correct
    WRONG_SHAPE = "wrong_shape"
    """Shape, dtype or strides are not those asked for."""
    NOT_FINITE = "not_finite"
    WRONG_RESULT = "wrong_result"
    """Outside the fidelity gate."""
    OVER_BUDGET = "over_budget"
    """The number format costs more than the error budget."""
    NO_BETTER_THAN_ZEROS = "no_better_than_zeros"
    """The gate cannot tell the result from zeros, a constant or a permutation."""
    PARTIAL_RESULT = "partial_result"
    """Part of a poisoned output was left as it was."""
    WRONG_ELSEWHERE = "wrong_elsewhere"
    """Right for one shape or seed, wrong for another."""
    NOT_REPEATABLE = "not_repeatable"
    CHANGES_INPUTS = "changes_inputs"
    WRITES_OUTSIDE = "writes_outside"
    READS_OUTSIDE = "reads_outside"
    LOW_PRECISION = "low_precision"
    """Within the gate on easy data, and coarser than declared."""
    # 3 honest
    STALE_RESULT = "stale_result"
    """The result does not follow inputs that were changed in place."""
    CACHES_BY_IDENTITY = "caches_by_identity"
    """Other contents at the same address, or the same object, give the old result."""
    LAZY_RESULT = "lazy_result"
    """What it returns is no tensor, and computes when it is looked at."""
    SIDE_STREAM = "side_stream"
    NO_WORK = "no_work"
    """It hands back an input, the result of contents it saw before, or what another process did."""
    PATCHED = "patched"
    """It changed the timer, the checks or the reference."""
    CHANGES_STATE = "changes_state"
    """Global state outlives it: default dtype, matmul flags, seeds, L2 carve-out."""
    KEEPS_RUNNING = "keeps_running"
    """Threads or processes are left working."""
    BASELINE_IN_DISGUISE = "baseline_in_disguise"
    """It calls the baseline and calls itself new."""
    KNOWS_THE_SEED = "knows_the_seed"
    LOOKS_AT_THE_JUDGE = "looks_at_the_judge"
    """It searches frames or the garbage collector's list for the answer."""
    TOO_FEW_BYTES = "too_few_bytes"
    """Fewer bytes at L2 than the operands have."""
    FASTER_THAN_HARDWARE = "faster_than_hardware"
    """Beyond what the datasheet allows."""
    # 4 faster
    NOT_FASTER = "not_faster"
    INFERIOR_ELSEWHERE = "inferior_elsewhere"
    """Slower in a regime that was not asked for."""
    HOLD_OUT = "hold_out"
    """Faster in one process, not shown in fresh ones."""
    OUTDONE = "outdone"
    """Confirmed in fresh processes, and another finalist of the workload is faster still."""
    CANNOT_BE_TIMED = "cannot_be_timed"
    # under a tool of its own
    SANITIZER = "sanitizer"
    """compute-sanitizer found something."""
    TOOL_FAILED = "tool_failed"
    """A tool that was to look at it did not come to its end: that says nothing of it."""
    # not tried
    CANNOT_PAY = "cannot_pay"
    """The model says that even its floor is no gain."""
    REGISTER_SPILLS = "register_spills"
    """Compiled, not run: its loops go to memory for registers that spilled."""
    LOW_OCCUPANCY = "low_occupancy"
    """Compiled, not run: far fewer warps fit than of others of its kind."""
    REMEMBERED = "remembered"
    """Rejected before, on this GPU with these versions."""
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Candidate:
    """An implementation with its configuration."""

    implementation: str
    """`own_decode`, `cublas_bf16`; of a problem's file, the name it has there."""
    config: Config = field(default_factory=dict)
    """Empty = its default."""
    format: str | None = None
    """The number format, `w8a16_fp8`; `None` where the problem has none."""
    source: str = ""
    """Its provider, or the file it is from."""

    @property
    def key(self) -> tuple[str, str | None, ConfigKey]:
        """What makes two of a problem's candidates the same."""
        return self.implementation, self.format, config_key(self.config)


@dataclass(frozen=True)
class CounterMovement:
    """What a counter is expected to do, and did."""

    metric: str
    """Its name in a profile."""
    expected: float
    """Candidate over incumbent."""
    seen: float | None = None
    """The same, measured; `None` = not looked at."""

    @property
    def moved(self) -> bool | None:
        """Whether it moved the way that was expected, by half of it at least."""
        if self.seen is None:
            return None
        if self.expected < 1:
            return self.seen <= 1 - (1 - self.expected) / 2
        return self.seen >= 1 + (self.expected - 1) / 2


@dataclass(frozen=True)
class Prediction:
    """Made before anything was measured; it orders, and accepts nothing."""

    times_us: Mapping[Regime, float]
    """Estimated."""
    basis: str
    """What it rests on, in a few words."""
    counters: tuple[CounterMovement, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A candidate, and why it should help."""

    candidate: Candidate
    action: Action
    why: str
    """One sentence for the user."""
    proposer: str
    """`rules`, `providers`, `search`, ..."""
    evidence: tuple[str, ...] = ()
    prediction: Prediction | None = None
    cost_s: float = 1.0
    """What trying it takes, seconds; estimated."""


@dataclass(frozen=True)
class RegimeResult:
    """Times of a candidate beside the baseline's in one regime."""

    regime: Regime
    baseline_us: float
    candidate_us: float
    speedup: Interval
    hold_out: bool
    """Over fresh processes; otherwise of one process, and a screen."""


@dataclass(frozen=True)
class Trial:
    """One try, ended."""

    number: int
    """In its study, from 1."""
    workload: str
    """`Workload.shape_text`, or the name of a problem's workload."""
    proposal: Proposal
    outcome: Outcome
    reason: Reason | None
    """`None` exactly where it was accepted or passed the screen."""
    detail: str
    """The finding in a sentence."""
    results: tuple[RegimeResult, ...] = ()
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None
    added_bytes: int | None = None
    """Memory held beside the original weight."""
    explained: bool | None = None
    """Whether the predicted counter moved; `None` = not looked at."""
    notes: tuple[str, ...] = ()
