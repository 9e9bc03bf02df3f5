"""A problem as a Python file: plain functions, or a model as KernelBench has it.

A file is code: whoever loads it runs it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_compass.api.candidate_calls import not_taken
from kernel_compass.api.problem_imports import digest_of
from kernel_compass.api.problem_models import is_model_file, model_problem
from kernel_compass.api.problem_parts import FORM, Candidates, described, plain_problem
from kernel_compass.api.tuned_kernels import Pin, pins_of, split
from kernel_compass.errors import NotTaken, UsageError, shortened
from kernel_compass.records.contracts import Config
from kernel_compass.records.problem import ProblemDescription
from kernel_compass.validation.judge_contracts import JudgedProblem, Runner


@dataclass(frozen=True)
class FileProblem:
    """A problem that was loaded."""

    problem: JudgedProblem
    description: ProblemDescription
    """What the parent process gets to know."""
    sha256: str
    module: ModuleType
    """What the file defines."""
    candidates: Candidates = field(default_factory=dict)
    """Of the file, with their spaces."""
    inputs: tuple[str, ...] = ()
    """Their names; of a model's file, none."""

    def build(self, name: str, config: Config) -> Runner:
        """A candidate of the file by name, with a configuration.

        Raises:
            UsageError: it has none of this name.
        """
        if name not in self.candidates:
            raise UsageError(
                f"{self.description.name} has no candidate {name!r}.",
                f"It has {', '.join(self.candidates) or 'none'}.",
            )
        return FunctionCandidate(self.candidates[name][0], config)


def load_problem(
    torch: Any, path: Path, device: str = "cpu", sha256: str | None = None
) -> FileProblem:
    """Run a problem's file and check what is in it, with its first workload.

    Args:
        torch: the module.
        path: the file.
        device: where inputs are made.
        sha256: of the contents that were agreed to; another file is refused.

    Raises:
        UsageError: something is missing or wrong; it says what, and what is needed.
    """
    module, digest = run_file(path, sha256)
    if is_model_file(module):
        problem, found = model_problem(torch, module, path.stem, device)
        return FileProblem(problem, found, digest, module)
    parts = plain_problem(torch, module, path, device)
    description = described(parts, module.ERROR_BUDGET)
    return FileProblem(parts.problem, description, digest, module, parts.candidates, parts.inputs)


@dataclass(frozen=True)
class FunctionCandidate:
    """A function of a problem's file, with a configuration."""

    function: Callable[..., Any]
    config: Config

    def prepare(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Operands that stay are passed on as they are."""
        return dict(held)

    def run(self, state: dict[str, Any], given: Mapping[str, Any]) -> Any:
        """Call it with all operands and its configuration by name, its kernels pinned to theirs.

        Raises:
            NotTaken: it does not take its configuration, or its kernels do not.
            Exception: its own.
        """
        own, pins = self._parts
        with ExitStack() as stack:
            for one in pins:
                stack.enter_context(one.held())
            try:
                return self.function(**state, **given, **own)
            except TypeError as error:
                refused = not_taken(self.function, (*state, *given), own, error)
                if refused is not None:
                    raise refused from error
                raise

    @cached_property
    def _parts(self) -> tuple[Mapping[str, Any], tuple[Pin, ...]]:
        try:
            return split(self.config)[0], pins_of(self.function, self.config)
        except UsageError as error:
            raise NotTaken(error.found, error.remedy) from error


def run_file(path: Path, sha256: str | None = None) -> tuple[ModuleType, str]:
    """A file as a module of its own, and the SHA-256 of what was run, with what it imports.

    Raises:
        UsageError: there is no such file, it is another one, or it fails.
    """
    try:
        contents = path.read_bytes()
        digest = digest_of(path, contents)
    except OSError as error:
        raise UsageError(f"Cannot read the problem {path}: {error.strerror}.", FORM) from error
    if sha256 is not None and digest != sha256:
        raise UsageError(
            f"{path}, or what it imports beside it, is another file than was agreed to.",
            "Look at it and start again.",
        )
    name = f"_problem_{digest[:16]}"
    spec = importlib.util.spec_from_loader(name, None, origin=str(path))
    if spec is None:
        raise UsageError(f"Cannot run {path}.", FORM)
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickles look there
    try:
        exec(compile(contents, str(path), "exec"), vars(module))
    except SyntaxError as error:
        raise UsageError(
            f"{path}, line {error.lineno}: {error.msg}.", "A problem is a Python file."
        ) from error
    except Exception as error:
        what = shortened(f"{type(error).__name__}: {error}", 300)
        raise UsageError(f"{path} fails when it is run: {what}.", "Run it alone first.") from error
    return module, digest
