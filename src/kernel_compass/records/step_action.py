"""What can be changed in a user's program without editing it, and what came of each change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernel_compass.records.comparison import Interval
from kernel_compass.records.contracts import Config
from kernel_compass.records.dispatch import GpuModel
from kernel_compass.records.trial import Candidate, Outcome, Reason
from kernel_compass.records.workload import Workload

Value = int | float | str | bool


class StepActionKind(StrEnum):
    """The named actions, in the order in which they are put on."""

    PRODUCT = "product"
    """`mm`, `bmm`, `linear`, `addmm` with a constant weight by another implementation; its weights
    are packed once. Linear layers with the same input may be computed as one."""
    TRITON_CONFIG = "triton_config"
    """The user's own Triton kernel with another configuration, put in at the launch."""
    LAYOUT = "layout"
    """A copy or transpose that the kernel after it does not need is left out."""
    MATMUL_PRECISION = "matmul_precision"
    """float32 products in TF32, where the budget allows it."""
    SDPA_BACKEND = "sdpa_backend"
    """Which of torch's attention backends computes `scaled_dot_product_attention`."""
    COMPILE_REGION = "compile_region"
    """A function or module under `torch.compile`: its run of small kernels is fused."""
    STEP_GRAPH = "step_graph"
    """The step is captured in a CUDA graph once and replayed."""


@dataclass(frozen=True)
class StepTarget:
    """What an action is applied to; enough to find it again in another process."""

    what: str
    """`module layers.0.mlp`, `function model.py:norm`, `kernel softmax_kernel`, `step`, or a
    product's pattern."""
    module: str | None = None
    """Qualified name in the step's module."""
    module_class: str | None = None
    """`model.py:DecoderBlock`: all modules of the class, where `module` is `None`."""
    function: str | None = None
    """`model.py:norm`."""
    kernel: str | None = None
    kernel_sha256: str | None = None
    workload: Workload | None = None
    """Of a product."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of the tensors, where the action holds for these alone."""
    parts: tuple[int, ...] = ()
    """Of a product: the columns of each of the products with the same input that it computes as
    one, in the order in which they are called; empty = it is a single one."""


@dataclass(frozen=True)
class StepAction:
    """One change."""

    kind: StepActionKind
    target: StepTarget
    candidate: Candidate | None = None
    """Of a product: implementation, format, configuration."""
    config: Config = field(default_factory=dict)
    """Of a Triton kernel."""
    settings: Mapping[str, Value] = field(default_factory=dict)
    """`backend`, `mode`, ...: of the others."""

    @property
    def text(self) -> str:
        """In a line."""
        one = self.candidate
        said = None if one is None else f"{one.implementation} {one.format}".strip()
        words = [f"{k}={v}" for k, v in sorted({**self.config, **self.settings}.items())]
        return " ".join(filter(None, (self.kind.value, self.target.what, said, *words)))


@dataclass(frozen=True)
class StepProposal:
    """A change with what it should bring, written down before it is measured."""

    action: StepAction
    why: str
    evidence: tuple[str, ...]
    share: float
    """Of the step's time that it touches, 0-1."""
    part_speedup: float | None
    """Of that part, predicted; `None` = not known."""
    saves_us: float | None
    """Of a step, predicted: Amdahl, launches saved included."""
    added_bytes: int = 0
    preconditions: tuple[str, ...] = ()
    """What has to hold, each checked before it is tried."""
    finer: int = 0
    """Implementations of a smaller error that are tried where outputs refuse this one."""


@dataclass(frozen=True)
class OutputError:
    """One of the step's outputs against the untouched program's."""

    name: str
    """`output`, `output[0]`, `output.logits`."""
    relative_pct: float
    """Frobenius norm of the difference over that of the reference (the untouched program's, in
    float32 where it can run so)."""
    top1_agreement_pct: float | None = None
    """Of logits: how often the largest is the same."""
    kl: float | None = None
    """Of logits: mean KL divergence, nats."""


@dataclass(frozen=True)
class StepTrial:
    """One change, tried on top of those accepted before it."""

    number: int
    proposal: StepProposal
    outcome: Outcome
    reason: Reason | None = None
    detail: str = ""
    speedup: Interval | None = None
    """Of the whole step against the step without this change, paired."""
    before_us: float | None = None
    after_us: float | None = None
    outputs: tuple[OutputError, ...] = ()
    """With all changes on, against the untouched program."""
    added_bytes: int = 0
    inputs: int = 1
    """That outputs were compared on."""

    @property
    def saved_us(self) -> float | None:
        """Measured, of a step."""
        if self.before_us is None or self.after_us is None:
            return None
        return self.before_us - self.after_us


@dataclass(frozen=True)
class StepEntry:
    """An accepted change as a dispatch table holds it."""

    action: StepAction
    gpu: GpuModel
    program: str
    files: Mapping[str, str]
    """SHA-256 of the program's files that the action depends on: another file, and it is not put
    on. Empty for what depends on none (a product)."""
    study: str
    trial: int
    speedup: Interval
    """Of the step."""
    outputs: tuple[OutputError, ...] = ()
    added_bytes: int = 0
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of installed packages that the step goes through: the same for them."""

    @property
    def reference(self) -> str:
        """`STUDY:TRIAL`."""
        return f"{self.study}:{self.trial}"

    @property
    def place(self) -> tuple[str, ...]:
        """What one entry alone may be in force for."""
        at = self.action.target
        named = (at.what, at.module, at.module_class, at.function, at.kernel, at.kernel_sha256)
        product = at.workload.shape_text if at.workload is not None else ""
        order = list(StepActionKind).index(self.action.kind)
        where = (self.program, f"{order}", *(one or "" for one in named), product)
        return (*where, str(at.shapes), self.gpu.text)
