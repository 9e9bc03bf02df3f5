"""A step whose truth is known, and a bench that measures it: what tests of the step loop share."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.records.comparison import Decision, Interval, Rule
from kernel_compass.records.device import Device
from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.problem import ProblemSource
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import (
    OutputError,
    StepActionKind,
    StepEntry,
    StepTarget,
)
from kernel_compass.records.step_capture import (
    NotHandled,
    SourceLine,
    StepCapture,
    StepKernel,
    StepLaunch,
    StepOp,
    StepTensor,
)
from kernel_compass.records.step_loop import (
    ConfigTime,
    ProductFound,
    StepOptions,
    StepSampled,
    StepTried,
)
from kernel_compass.records.study import Study, StudyRequest
from kernel_compass.records.trial import Candidate, Reason
from kernel_compass.records.workload import Op, Workload

ENVIRONMENT = Environment(Device("NVIDIA H200", "9.0", 132, 60 << 20), torch="2.11.0")
KIND = StepActionKind
DOWN = Workload(Op.LINEAR, 1, 16, 14336, 4096)
SHA = "5" * 64


def tensor(*shape, storage=0, dtype="bfloat16", constant=False, name=None):
    strides, count = [], 1
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    return StepTensor(tuple(shape), tuple(strides), dtype, "cuda", storage, constant, name)


def line(number, function="forward"):
    return SourceLine("model.py", number, function)


def op(index, name, inputs, outputs, module=None, at=10, **more):
    place = line(at)
    return StepOp(index, name, tuple(inputs), tuple(outputs), (), place, module, **more)


def decode_capture(idle_us=500.0):
    """Two long products, a user's Triton kernel, attention, and short kernels between them."""
    x = tensor(16, 4096, storage=1)
    weight = tensor(14336, 4096, storage=2, constant=True, name="down.weight")
    ops = (
        op(0, "aten::pow", [x], [tensor(16, 4096, storage=3)], "norm", 20),
        op(1, "aten::mean", [tensor(16, 4096, storage=3)], [tensor(16, 1, storage=4)], "norm", 21),
        op(2, "aten::mul", [x, tensor(16, 1, storage=4)], [tensor(16, 4096, storage=5)], "norm"),
        op(3, "aten::mm", [tensor(16, 14336, storage=6), weight], [tensor(16, 4096, storage=7)],
           "mlp", 40),
        op(4, "aten::_scaled_dot_product_flash_attention", [tensor(16, 32, 1, 128, storage=8)],
           [tensor(16, 32, 1, 128, storage=9)], "attn", 50),
    )  # fmt: skip
    launch = StepLaunch(
        0, 5, "softmax_kernel", SHA, line(5, "softmax_kernel"), (16,),
        {"BLOCK": 256, "num_warps": 4}, {}, (), line(60), "attn",
    )  # fmt: skip
    kernels = (
        StepKernel("pow_kernel", 4.0, 1, 0, floor_us=1.0, line=line(20)),
        StepKernel("mean_kernel", 4.0, 1, 1, floor_us=1.0, line=line(21)),
        StepKernel("mul_kernel", 4.0, 1, 2, floor_us=1.0, line=line(10)),
        StepKernel("nvjet_down", 60.0, 1, 3, floor_us=50.0, line=line(40)),
        StepKernel("flash_fwd", 50.0, 1, 4, floor_us=45.0, line=line(50)),
        StepKernel("softmax_kernel", 40.0, 1, None, 0, floor_us=20.0, line=line(60)),
    )
    return StepCapture(
        "step.py",
        "Block.forward",
        ENVIRONMENT,
        ops,
        (launch,),
        (),
        kernels,
        5,
        162.0 + idle_us,
        idle_us,
        not_handled=(NotHandled("autograd.Function Scale", "its code is not seen", line(70)),),
        files={"step.py": "a" * 64},
        modules={"": "model.py:Block", "norm": "model.py:Norm", "mlp": "model.py:Mlp"},
    )


@dataclass(frozen=True)
class FakeGroup:
    kernels: tuple[int, ...]
    time_us: float
    gap_us: float
    saves_at_most_us: float
    first_line: SourceLine | None
    last_line: SourceLine | None
    module: str | None


def groups_of(capture):
    if len(capture.kernels) < 6:
        return ()
    return (FakeGroup((0, 1, 2), 12.0, 3.0, 12.0, line(20), line(10), "norm"),)


SAVES = {KIND.STEP_GRAPH: 480.0, KIND.COMPILE_REGION: 9.0, KIND.PRODUCT: 5.0}
"""What each change really saves."""


@dataclass
class FakeBench:
    """Times are what they are; noise is of a seed."""

    saves: dict[object, float] = field(default_factory=lambda: dict(SAVES))
    errors: dict[object, float] = field(default_factory=dict)
    """By kind, or by a product's number format."""
    failures: dict[object, Reason] = field(default_factory=dict)
    base_us: float = 662.0
    holds: bool = True
    modes: dict[str, float] = field(default_factory=dict)
    """What the step takes with a region under each of torch.compile's modes."""
    asked: list[tuple[str, object]] = field(default_factory=list)
    interrupt_at: int | None = None
    product: ProductFound | None = None
    inputs: int = 1
    """That outputs are compared on."""

    def capture(self, accepted):
        self.asked.append(("capture", accepted))
        kinds = {one.kind for one in accepted}
        found = decode_capture(0.0 if KIND.STEP_GRAPH in kinds else 500.0)
        kernels = found.kernels
        if KIND.COMPILE_REGION in kinds:
            fused = StepKernel("triton_fused", 3.0, 1, 0, floor_us=2.0, line=line(20))
            kernels = (fused, *kernels[3:])
        return replace(found, kernels=kernels, step_us=self._us(accepted))

    def study(self, workload, dtype):
        self.asked.append(("study", workload))
        if self.product is not None:
            return self.product
        interval = Interval(1.5, 1.45, 1.55, 0.95)
        candidate = Candidate("own_decode", {"BLOCK_N": 64}, "w8a16_fp8", "own")
        return ProductFound("study-p", candidate, {"cold": interval, "warm": interval}, 58 << 20)

    def rank(self, accepted, actions):
        self.asked.append(("rank", actions))
        if actions[0].kind is KIND.COMPILE_REGION:
            return tuple(ConfigTime(self.modes.get(one.settings["mode"])) for one in actions)
        wanted = {"BLOCK": 1024, "num_warps": 4}
        return tuple(ConfigTime(100.0 if dict(one.config) == wanted else 120.0) for one in actions)

    def attempt(self, accepted, action):
        self.asked.append(("attempt", action))
        if self.interrupt_at is not None and len(self.asked) >= self.interrupt_at:
            raise KeyboardInterrupt
        failure = self.failures.get(action.kind)
        if failure is not None:
            return StepTried(failure, "the process ended by a signal")
        before, after = self._us(accepted), self._us((*accepted, action))
        error = self.errors.get(action.kind, 0.1)
        if action.candidate is not None:
            error = self.errors.get(action.candidate.format, error)
        outputs = (OutputError("output", error),)
        if outputs[0].relative_pct > 1.0:
            return StepTried(Reason.OVER_BUDGET, "output is off", outputs=outputs)
        comparison = SequentialComparison(Rule(minimum_effect=0.01, looks=(12, 24, 48)))
        rng = random.Random(repr(action))
        while comparison.decision is Decision.CONTINUE:
            comparison.add(_pairs(before, after, comparison.pairs_wanted, rng))
        result = comparison.result()
        return StepTried(None, "", result, before, after, outputs, inputs=self.inputs)

    def sample(self, process, actions):
        self.asked.append(("sample", process))
        after = self._us(actions) if self.holds else self.base_us
        rng = random.Random(process)
        pairs = _pairs(self.base_us, after, 12, rng, process)
        outputs = (OutputError("output", 0.2),)
        return StepSampled(pairs, outputs=outputs, added_bytes=1 << 20, inputs=self.inputs)

    def _us(self, actions):
        saved = sum(self._saves(one) for one in actions)
        return self.base_us - saved

    def _saves(self, action):
        if action.kind is KIND.TRITON_CONFIG and action.config.get("BLOCK") == 1024:
            return 15.0
        return self.saves.get(action.kind, 0.0)


def _pairs(before, after, count, rng, process=0):
    a = tuple(before * rng.gauss(1, 0.004) for _ in range(count))
    b = tuple(after * rng.gauss(1, 0.004) for _ in range(count))
    return PairedSamples(a, b, Regime.IN_SITU, LaunchMode.EAGER, 10, process)


def entry(trial, final):
    return StepEntry(
        trial.proposal.action,
        GpuModel("NVIDIA H200", "9.0", 132),
        "step.py",
        {"step.py": "a" * 64},
        "study-s",
        trial.number,
        final.speedup,
        final.outputs,
        trial.added_bytes,
    )


def study():
    source = ProblemSource("step.py", {"program": "script"}, "a" * 64)
    options = {"study": "step", "device": "cuda", **StepOptions().kept}
    request = StudyRequest(source, (Regime.IN_SITU,), 1.0, options=options)
    return Study("study-s", request, ENVIRONMENT)


GRAPH = StepTarget("step")
