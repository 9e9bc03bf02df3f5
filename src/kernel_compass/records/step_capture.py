"""One step of a user's program as it was captured: its operators, launches, regions, kernels.

A step is what the program does again and again: a call of the entry that the user names, or of the
outermost `torch.nn.Module`. Files are written relative to the program's folder, or as the package
that they belong to (`torch/nn/functional.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernel_compass.records.contracts import Config
from kernel_compass.records.environment import Environment

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Of a Triton launch, beside the kernel's own meta-parameters."""


@dataclass(frozen=True)
class SourceLine:
    """Where something was called."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """`model.py:42 forward`."""
        return f"{self.file}:{self.line} {self.function}"


@dataclass(frozen=True)
class StepTensor:
    """A tensor that an operator or a launch read or wrote."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    dtype: str
    """`bfloat16`, `float32`, ...: torch's name."""
    device: str
    """`cuda`, `cpu`."""
    storage: int
    """Tensors of one capture that share memory have the same number."""
    constant: bool = False
    """Whether its contents were the same at every step: a parameter, a buffer, a tensor that was
    made before the step and never written in it."""
    name: str | None = None
    """Of a parameter or buffer, from the step's module: `layers.0.q_proj.weight`."""
    unversioned: bool = False
    """Of a constant: whether torch counts no changes of it, as it was made in inference mode."""


@dataclass(frozen=True)
class StepOp:
    """One operator of the step, outermost as the dispatcher sees it (`aten::mm`)."""

    index: int
    """Its place in the step, from 0."""
    name: str
    """`aten::mm`, overload left out."""
    inputs: tuple[StepTensor, ...]
    outputs: tuple[StepTensor, ...]
    arguments: tuple[str, ...] = ()
    """Those that are no tensors, as text."""
    line: SourceLine | None = None
    """The user's innermost line: outside of torch and of this package."""
    module: str | None = None
    """The innermost module that was running: `layers.0.attn`, empty for the step's own; `None` =
    outside of any."""
    region: int | None = None
    """The region that it belongs to."""
    writes: bool = False
    """Whether it changes an input in place."""


@dataclass(frozen=True)
class StepLaunch:
    """One launch of a Triton kernel by the user's own code."""

    index: int
    after_op: int
    """Operators that had run before it in the step."""
    kernel: str
    source_sha256: str
    """Of the kernel's source text, that of the functions it calls included."""
    kernel_line: SourceLine
    """Where the kernel is defined."""
    grid: tuple[int, ...]
    config: Config
    """Its meta-parameters and its `LAUNCH_OPTIONS`."""
    arguments: Mapping[str, StepTensor | int | float | bool | str | None]
    """By name, `tl.constexpr` left out."""
    choices: tuple[Config, ...] = ()
    """What its `@triton.autotune` chooses among; empty = its configuration is fixed."""
    line: SourceLine | None = None
    """Where it is launched."""
    module: str | None = None
    region: int | None = None
    tied: tuple[str, ...] = ()
    """Meta-parameters that stay: the grid would have to follow them, and is given as numbers, or by
    a function that does not read them."""


class RegionKind(StrEnum):
    """What holds several operators together."""

    COMPILED = "compiled"
    """A `torch.compile`d function: what it runs is no longer a list of operators."""
    GRAPH = "graph"
    """A CUDA graph that the program replays."""
    THREAD = "thread"
    """Work of another thread."""


@dataclass(frozen=True)
class StepRegion:
    """A part of the step that is handled as a whole."""

    index: int
    kind: RegionKind
    name: str
    line: SourceLine | None
    calls: int = 1


@dataclass(frozen=True)
class NotHandled:
    """Something in the program that capture, or an action, cannot do anything with."""

    what: str
    """`autograd.Function Scale`, `graph break`, `a sub-process`, ..."""
    why: str
    line: SourceLine | None = None


@dataclass(frozen=True)
class StepKernel:
    """One GPU kernel of the step, joined to what launched it: the launches of one name by one
    operator, launch or region."""

    name: str
    time_us: float
    """Of all its launches in one step, median over the steps."""
    launches: float
    """A step."""
    op: int | None = None
    """`StepOp.index` of the first operator that launched it; `None` = none is known."""
    launch: int | None = None
    """`StepLaunch.index`, where it is a Triton kernel of the user's."""
    region: int | None = None
    limiter: str | None = None
    floor_us: float | None = None
    """Of all its launches in one step."""
    line: SourceLine | None = None
    gap_us: float | None = None
    """How long the GPU had nothing to do right before its launches, in one step."""
    counted: bool = False
    """Whether the limiter is that of ncu's counters; else the timeline's."""
    floor_basis: str | None = None
    """`compulsory` (the operator's own bytes and arithmetic) or `traffic` (the bytes that ncu
    counted: what less traffic would save is not in it)."""


@dataclass(frozen=True)
class StepCapture:
    """All that one run under capture found."""

    program: str
    """As the user named it: `step.py`, `pkg.module`, `step.py:decode`."""
    step: str
    """What a step is: `decode()`, `DecoderBlock.forward`."""
    environment: Environment
    ops: tuple[StepOp, ...]
    launches: tuple[StepLaunch, ...] = ()
    regions: tuple[StepRegion, ...] = ()
    kernels: tuple[StepKernel, ...] = ()
    """In the order of their first launch; empty without a GPU."""
    steps: int = 1
    """How many were seen."""
    step_us: float | None = None
    """Median time of a step, on the GPU's clock where there is one."""
    idle_us: float | None = None
    """Of it, when the GPU had nothing to do."""
    in_graph: bool = False
    """Whether the program itself replays the step as a CUDA graph."""
    not_handled: tuple[NotHandled, ...] = ()
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the program's own files, and of those elsewhere that the step goes through."""
    modules: Mapping[str, str] = field(default_factory=dict)
    """Class of each of the step's modules, by qualified name (empty = the step's own):
    `model.py:DecoderBlock`, as `StepTarget.module_class` names it."""
    inside: tuple[StepOp, ...] = ()
    """Operators of compiled regions, as a call without compiling has them; numbered as they ran."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of installed packages that the step goes through, but torch and Triton."""
