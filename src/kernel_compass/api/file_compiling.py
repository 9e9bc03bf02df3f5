"""A configuration of a problem file's own candidate, compiled for a GPU and not run.

What a kernel is compiled for hangs on the arguments of its launches. They are learned from one call
of the candidate with the problem's inputs, in which launches compile and nothing else: on torch's
fake tensors, which say that they lie on the GPU and have no memory; where the file needs values,
on tensors of the CPU. A file is code: this runs it, in a process of its own.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_compass import __version__
from kernel_compass.api.problem_files import FunctionCandidate, run_file
from kernel_compass.api.problem_parts import own_function
from kernel_compass.api.tuned_kernels import launched_kernels
from kernel_compass.errors import shortened
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.stand_in_gpu import stand_in_gpu
from kernel_compass.kernels.static_compile import compile_for, standing_in
from kernel_compass.kernels.static_point import figures_of
from kernel_compass.optimizer.search.prune import Compiled, is_of_the_compiler
from kernel_compass.records.contracts import Config
from kernel_compass.records.problem import ProblemSource, ProblemWorkload

SEED = 1
NO_KERNEL = "it names no kernel of Triton's"


class NotCompiled(Exception):
    """Nothing is known of a candidate's kernels, and why."""


@dataclass(frozen=True)
class FileRequest:
    """A candidate of a problem's file, at a workload."""

    source: ProblemSource
    """The file that was agreed to."""
    workload: ProblemWorkload
    candidate: str
    capability: tuple[int, int]
    multiprocessors: int
    """What is said to a candidate that asks for their number."""

    def known_by(self, config: Config) -> list[Any]:
        """What decides what becomes of a configuration: JSON."""
        torch = str(torch_library().__version__)
        parts = [_own_sources(), __version__, torch, self.source.sha256, self.candidate]
        return [*parts, dict(self.workload.values), self.multiprocessors, dict(config)]

    def figures(self, config: Config) -> tuple[dict[str, float], ...]:
        """Of each kernel that a call launches; see `figures_of`.

        Raises:
            NotCompiled: the arguments of its launches cannot be learned here.
            Exception: Triton's own, where a kernel cannot be compiled.
        """
        torch = torch_library()
        with (
            standing_in(self.capability, self.multiprocessors),
            stand_in_gpu(torch, self.capability, self.multiprocessors),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # of fake tensors, whose addresses are their offsets
            module = _module(self.source.target, self.source.sha256)
            function = own_function(module, self.candidate)
            if not launched_kernels(function):
                raise NotCompiled(NO_KERNEL)
            call = FunctionCandidate(function, config)
            failures = []
            for learn in (_on_fake_tensors, _on_the_cpu):
                try:
                    return learn(torch, module, self, call)
                except Exception as error:
                    said = f"{type(error).__name__}: {error}"
                    if is_of_the_compiler(said):
                        raise
                    failures.append(shortened(" ".join(said.split()), 120))
        said = "; on the CPU: ".join(dict.fromkeys(failures))
        raise NotCompiled(f"no launch of it can be learned without running it: {said}")

    def is_lasting(self, compiled: Compiled) -> bool:
        """What fails on the way to the compiler may hang on what is installed."""
        return compiled.is_known


@cache
def _module(path: str, sha256: str | None) -> ModuleType:
    return run_file(Path(path), sha256)[0]


@cache
def _own_sources() -> str:
    """Of what decides how a call is made to compile."""
    here = Path(__file__)
    kernels = here.parents[1] / "kernels"
    files = [here, *(kernels / f"{n}.py" for n in ("static_compile", "static_point"))]
    files += [kernels / "stand_in_gpu.py", here.with_name("tuned_kernels.py")]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _on_fake_tensors(
    torch: Any, module: ModuleType, request: FileRequest, call: FunctionCandidate
) -> tuple[dict[str, float], ...]:
    mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    with mode:
        given = _mapped(torch, _drawn(torch, module, request), lambda one: _on_gpu(torch, one))
        return _compiled(torch, request, call, given)


def _on_the_cpu(
    torch: Any, module: ModuleType, request: FileRequest, call: FunctionCandidate
) -> tuple[dict[str, float], ...]:
    return _compiled(torch, request, call, _drawn(torch, module, request))


def _drawn(torch: Any, module: ModuleType, request: FileRequest) -> dict[str, Any]:
    generator = torch.Generator("cpu").manual_seed(SEED)
    return dict(module.inputs(dict(request.workload.values), generator))


def _compiled(
    torch: Any, request: FileRequest, call: FunctionCandidate, given: Mapping[str, Any]
) -> tuple[dict[str, float], ...]:
    def launch() -> None:
        with torch.no_grad():
            call.run({}, given)

    return figures_of(compile_for(launch, request.capability))


def _on_gpu(torch: Any, tensor: Any) -> Any:
    """A fake tensor as it would lie on the GPU: its strides and its place in its storage kept."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    base = torch.empty(size, dtype=tensor.dtype, device="cuda:0")
    return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _mapped(torch: Any, given: Any, change: Callable[[Any], Any]) -> Any:
    """The same with each tensor changed, in dictionaries, lists and tuples too."""
    if isinstance(given, torch.Tensor):
        return change(given)
    if isinstance(given, dict):
        return {name: _mapped(torch, one, change) for name, one in given.items()}
    if type(given) in (list, tuple):
        return type(given)(_mapped(torch, one, change) for one in given)
    return given
