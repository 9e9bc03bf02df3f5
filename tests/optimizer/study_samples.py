"""Studies, trials and entries that tests of the loop's records share."""

from __future__ import annotations

from kernel_compass.records.comparison import Interval
from kernel_compass.records.device import Device
from kernel_compass.records.dispatch import (
    DispatchEntry,
    GpuModel,
    RegimeWin,
    WorkloadPattern,
    token_ranges,
)
from kernel_compass.records.environment import Environment
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import (
    OutputError,
    StepAction,
    StepActionKind,
    StepEntry,
    StepTarget,
)
from kernel_compass.records.study import Study, StudyLimits, StudyRequest
from kernel_compass.records.trial import (
    Action,
    Candidate,
    CounterMovement,
    Outcome,
    Prediction,
    Proposal,
    Reason,
    RegimeResult,
    Trial,
)
from kernel_compass.records.workload import Op, Workload

ENVIRONMENT = Environment(
    Device("NVIDIA H200", "9.0", 132, 50 << 20),
    driver="580.65.06",
    torch="2.9.0",
    triton="3.6.0",
    python="3.12.3",
    kernel_compass="0.1.0",
    date="2026-12-02T01:02:03+00:00",
)
H200 = GpuModel("NVIDIA H200", "9.0", 132)


def study(identifier="study-a", target="mla:deepseek-v3", sha256=None, **options):
    source = ProblemSource(target, {"tokens": "1,16", "tp": 8}, sha256)
    request = StudyRequest(
        source,
        (Regime.COLD, Regime.WARM),
        error_budget_pct=3.0,
        formats=("bf16", "w8a16_fp8"),
        limits=StudyLimits(minutes=5, trials=100),
        seed=7,
        options={"minimum_effect": 0.02, "quick": True, **options},
    )
    return Study(identifier, request, ENVIRONMENT)


def proposal(block=64, implementation="own_decode"):
    return Proposal(
        Candidate(implementation, {"BLOCK_N": block, "swap": True, "kernel": "mma"}, "w8a16_fp8"),
        Action.PRECISION,
        "half the bytes of the weight",
        "rules",
        ("dram__bytes_read.sum = 16.8 MB",),
        Prediction(
            {Regime.COLD: 10.5, Regime.WARM: 6},
            "model",
            (CounterMovement("dram__bytes_read.sum", 0.5, 0.52),),
        ),
        2,
    )


def trial(number=1, accepted=False, reason=Reason.NOT_FASTER, proposed=None, detail=""):
    results = tuple(
        RegimeResult(regime, 20.0, 20.0 / gain, Interval(gain, gain - 0.1, gain + 0.1, 0.95), True)
        for regime, gain in ((Regime.COLD, 1.6), (Regime.WARM, 1.2))
    )
    return Trial(
        number,
        "bmm 16x1x128x512",
        proposed or proposal(),
        Outcome.ACCEPTED if accepted else Outcome.REJECTED,
        None if accepted else reason,
        detail or "1.20 times at least",
        results,
        fidelity_error_pct=0.21,
        format_error_pct=2.1,
        added_bytes=1 << 20,
        explained=True,
        notes=("clocks moved by 1 %",),
    )


def entry(
    study="study-a",
    trial=1,
    low=1.1,
    tokens=(1, 16),
    sizes=(16, 128, 512),
    op=Op.BMM,
    gpu=H200,
    candidate=None,
    files=None,
):
    pattern = tokens if isinstance(tokens, WorkloadPattern) else None
    heads, reduction, columns = sizes
    ranges = token_ranges(tokens) if all(isinstance(t, int) for t in tokens) else tuple(tokens)
    wins = tuple(
        RegimeWin(regime, Interval(low + extra + 0.1, low + extra, low + extra + 0.2, 0.95))
        for regime, extra in ((Regime.COLD, 0.4), (Regime.WARM, 0.0))
    )
    return DispatchEntry(
        pattern or WorkloadPattern(op, heads, reduction, columns, ranges),
        gpu,
        wins,
        candidate or Candidate("own_decode", {"BLOCK_N": 64}, "w8a16_fp8", "own"),
        study,
        trial,
        trial_sha256="ab" * 32,
        fidelity_error_pct=0.2,
        format_error_pct=2.1,
        added_bytes=1 << 20,
        files=files or {},
    )


ACTIONS = {
    "product": StepAction(
        StepActionKind.PRODUCT,
        StepTarget("linear Mx80x96, M = 16", workload=Workload(Op.LINEAR, 1, 16, 96, 80)),
        Candidate("own_decode", {"BLOCK_N": 64}, "w8a16_fp8", "own"),
    ),
    "triton_config": StepAction(
        StepActionKind.TRITON_CONFIG,
        StepTarget("kernel softmax", kernel="softmax", kernel_sha256="ab" * 32, shapes=((4, 8),)),
        config={"BLOCK": 128, "num_warps": 8},
    ),
    "compile_region": StepAction(
        StepActionKind.COMPILE_REGION,
        StepTarget("function model.py:norm", function="model.py:norm"),
        settings={"mode": "default", "dynamic": False},
    ),
    "step_graph": StepAction(StepActionKind.STEP_GRAPH, StepTarget("step", module="")),
}


def step_entry(kind="compile_region", study="study-s", trial=1, low=1.1, gpu=H200, **more):
    return StepEntry(
        ACTIONS[kind],
        gpu,
        "step.py",
        more.pop("files", {"model.py": "cd" * 32}),
        study,
        trial,
        Interval(low + 0.1, low, low + 0.2, 0.95),
        (OutputError("output.logits", 0.25, 99.5, 0.001),),
        **more,
    )
