"""What the actions of one application share: the program's modules, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_compass.api.actions.finding import changed_file
from kernel_compass.api.dispatch_weights import gpu_model
from kernel_compass.kernels.providers.base import target_of
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.records.contracts import Implementation, Target, Tensor
from kernel_compass.records.dispatch import DispatchEntry, GpuModel
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_action import StepAction

if TYPE_CHECKING:
    from kernel_compass.api.actions.graphed import Graphs
    from kernel_compass.api.actions.root_waiting import RootWaiting
    from kernel_compass.api.actions.shared_input import Shared

Undo = Callable[[], None]


@dataclass
class Application:
    """An action with what became of it in this process."""

    action: StepAction
    on: bool = False
    """Whether it is put on; one that waits for its function to be defined is not yet."""
    objection: str | None = None
    """Why it is not put on, or was taken off."""
    uses: int = 0
    """Calls that it changed."""
    gpu: GpuModel | None = None
    """What it was measured on; `None` = it holds wherever it is put on."""
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of files that are looked at once the program has loaded them."""
    _fits: bool | None = None

    notes: list[str] = field(default_factory=list)
    """What it does not hold for, though it is on."""

    def note(self, what: str) -> None:
        """It does not hold for a part of the calls."""
        if what not in self.notes:
            self.notes.append(what)

    def refuse(self, why: str) -> None:
        """It cannot hold: the program goes on without it."""
        self.objection = self.objection or why
        self.on = False

    def fits(self, here: Callable[[], GpuModel]) -> bool:
        """Whether this is the machine that it was measured on, with the files.

        Asked when it would be used first, and not before: asking initialises CUDA, which a program
        that forks workers may do in them alone.
        """
        if self._fits is None:
            found = here() if self.gpu is not None else None
            self._fits = found == self.gpu
            if found is not None and not self._fits and self.gpu is not None:
                self.refuse(f"it was measured on {self.gpu.text}, and this is {found.text}")
            changed = changed_file(self.files, None)
            if changed is not None:
                self._fits = False
                self.refuse(changed)
        return self._fits

    @property
    def text(self) -> str:
        """In a line."""
        state = "on" if self.on else f"not on: {self.objection or 'its target is not defined yet'}"
        return f"{self.action.text}: {state}"


@dataclass
class Context:
    """Of one application of a set of actions.

    Args:
        roots: the program's modules by name; `None` = they are not known, and targets are found
            by class and function alone.
        free_originals: whether weights that were packed may be moved to host memory.
        implementation_of: finds an implementation of a product by its name.
        target: says what a tensor lies on.
        folder: of the program: what files of targets are relative to.
        defer: whether targets that are not there yet may be waited for.
        graphs: what captures steps; `None` = CUDA graphs.
        step: the program's step, where it is held.
    """

    roots: Mapping[str, Any] | None = None
    free_originals: bool = False
    implementation_of: Callable[[str], Implementation] = implementation
    target: Callable[[Tensor], Target] = target_of
    folder: Path | None = None
    defer: bool = False
    graphs: Graphs | None = None
    step: Any = None
    waiting: RootWaiting | None = None
    """For the step's module, where only the running program knows it."""
    products: list[DispatchEntry] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    """Products of one input that are computed as one."""
    environments: Mapping[str, Environment] = field(default_factory=dict)
    """Where studies measured: what is doubtful about an entry here is said from it."""
    sdpa: dict[tuple[tuple[int, ...], ...], str] = field(default_factory=dict)
    layouts: list[Application] = field(default_factory=list)
    applications: list[Application] = field(default_factory=list)

    def __post_init__(self) -> None:
        from kernel_compass.kernels.library import torch_library

        self.bare = torch_library()._C.DisableTorchFunction
        """Makes a block in which torch's functions are called past all modes."""

    def here(self) -> GpuModel:
        """The machine that the program runs on."""
        return machine_model()

    def of(self, action: StepAction) -> Application:
        """The application of an action."""
        return next(one for one in self.applications if one.action is action)

    def module(self, name: str) -> Any | None:
        """The module of a qualified name, `""` for the root; `None` = there is none."""
        if self.roots and name in self.roots:
            return self.roots[name]
        for prefix, root in (self.roots or {}).items():
            if hasattr(root, "named_modules"):
                known = {_joined(prefix, at): one for at, one in root.named_modules()}
                if len(self.roots or {}) == 1:  # then names may leave out the root's own
                    known |= dict(root.named_modules())
                if name in known:
                    return known[name]
        return None


def machine_model() -> GpuModel:
    """The GPU of this process, or its CPU where there is none: what an entry is measured on."""
    from kernel_compass.kernels.library import torch_library

    cuda = torch_library().cuda
    if not cuda.is_available():
        return gpu_model(Target("cpu"))
    found = cuda.get_device_properties(cuda.current_device())
    capability = (int(found.major), int(found.minor))
    target = Target("cuda", capability, str(found.name), int(found.multi_processor_count))
    return gpu_model(target)


def _joined(prefix: str, name: str) -> str:
    return ".".join(filter(None, (prefix, name)))
