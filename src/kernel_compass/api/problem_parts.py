"""The parts of a problem's file, each checked by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from kernel_compass.api.tuned_kernels import space_of, split
from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.baseline_survey import COMPILED
from kernel_compass.records.contracts import Config
from kernel_compass.records.problem import OwnCandidate, ProblemDescription, ProblemWorkload
from kernel_compass.validation.function_problem import FunctionProblem, ProblemFunctions

FORM = (
    "A problem is a Python file with WORKLOADS (a list of dictionaries), inputs(workload, "
    "generator), reference(...), baseline(...) and ERROR_BUDGET; or with Model, get_inputs and "
    "get_init_inputs."
)
MOST_BUDGET = 0.3
RESERVED = {"baseline": "what is to be beaten", COMPILED: "the baseline under torch.compile"}
"""Names that mean something else where a candidate is named."""
_TRIED_SEED = 1

Candidates = dict[str, tuple[Callable[..., Any], tuple[Config, ...]]]


class PlainParts(NamedTuple):
    """A problem of plain functions."""

    problem: FunctionProblem
    candidates: Candidates
    """Its own."""
    streamed: tuple[str, ...]
    """Names of what a cold regime drives out of L2."""
    inputs: tuple[str, ...]
    """Names of all."""


def plain_problem(torch: Any, module: ModuleType, path: Path, device: str) -> PlainParts:
    """The problem and what belongs to it.

    Raises:
        UsageError: a part is missing, of another kind, or fails with the first workload.
    """
    workloads = _workloads(module, path)
    functions = ProblemFunctions(
        *(_function(module, path, name) for name in ("inputs", "reference", "baseline"))
    )
    budget = _budget(module, path)
    given = _drawn(torch, functions, workloads[0], path, device)
    held = _names(module, path, "HELD", given, ())
    tensors = tuple(n for n, v in given.items() if isinstance(v, torch.Tensor))
    streamed = _names(module, path, "STREAMED", given, held or tensors)
    for name in ("reference", "baseline"):
        _accepts(getattr(functions, name), given, name, path)
    candidates = _candidates(module, path, given)
    problem = FunctionProblem(
        torch, path.stem, workloads, functions, budget, frozenset(held), device=device
    )
    _tried(problem, given, path)
    return PlainParts(problem, candidates, streamed, tuple(given))


def described(parts: PlainParts, budget: float) -> ProblemDescription:
    """What the parent process gets to know."""
    own = tuple(OwnCandidate(name, space) for name, (_, space) in parts.candidates.items())
    problem = parts.problem
    return ProblemDescription(problem.name, problem.workloads, parts.streamed, 100.0 * budget, own)


def _wrong(path: Path, found: str, remedy: str = FORM) -> UsageError:
    return UsageError(f"{path}: {found}", remedy)


def _part(module: ModuleType, path: Path, name: str) -> Any:
    if not hasattr(module, name):
        raise _wrong(path, f"there is no {name}.")
    return getattr(module, name)


def _workloads(module: ModuleType, path: Path) -> list[ProblemWorkload]:
    listed = _part(module, path, "WORKLOADS")
    if not isinstance(listed, list | tuple) or not listed:
        raise _wrong(
            path, "WORKLOADS is no list, or an empty one.", "Give a dictionary of sizes each."
        )
    found: list[ProblemWorkload] = []
    for index, one in enumerate(listed):
        if not isinstance(one, Mapping) or not all(
            isinstance(k, str) and isinstance(v, int | float | str | bool) for k, v in one.items()
        ):
            raise _wrong(
                path,
                f"WORKLOADS[{index}] is no dictionary of names to numbers, texts or truth values.",
                'Write it as {"tokens": 16, "width": 4096}.',
            )
        values = dict(one)
        if any(values == other.values for other in found):
            raise _wrong(path, f"WORKLOADS[{index}] is there twice.", "Leave one of them out.")
        name = ", ".join(f"{key} {value}" for key, value in values.items()) or "as it is"
        found.append(ProblemWorkload(name, values))
    return found


def _function(module: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    found = _part(module, path, name)
    if not callable(found):
        raise _wrong(path, f"{name} is a {type(found).__name__}, not a function.")
    return found  # type: ignore[no-any-return]


def _budget(module: ModuleType, path: Path) -> float:
    found = _part(module, path, "ERROR_BUDGET")
    if (
        isinstance(found, bool)
        or not isinstance(found, int | float)
        or not 0 < found <= MOST_BUDGET
    ):
        raise _wrong(
            path,
            f"ERROR_BUDGET is {found!r}.",
            f"It is a relative error above 0 and at most {MOST_BUDGET}: 0.03 for 3 %.",
        )
    return float(found)


def _drawn(
    torch: Any, functions: ProblemFunctions, workload: ProblemWorkload, path: Path, device: str
) -> dict[str, Any]:
    draws = []
    for _ in range(2):
        generator = torch.Generator(device).manual_seed(_TRIED_SEED)
        with _said(path, f"inputs fails for {workload.name}"):
            draws.append(functions.inputs(dict(workload.values), generator))
    first, second = draws
    if not isinstance(first, dict) or not all(isinstance(name, str) for name in first):
        raise _wrong(path, f"inputs returns a {type(first).__name__}.", "It returns a dictionary.")
    tensors = {n: v for n, v in first.items() if isinstance(v, torch.Tensor)}
    if not tensors:
        raise _wrong(path, "inputs returns no tensor.", "It returns a dictionary of tensors.")
    for name, value in tensors.items():
        if not torch.equal(value.nan_to_num(), second[name].nan_to_num()):
            raise _wrong(
                path,
                f"inputs gives another {name!r} for the same seed.",
                "Draw with generator=generator.",
            )
    return first


def _names(
    module: ModuleType, path: Path, name: str, given: dict[str, Any], default: tuple[str, ...]
) -> tuple[str, ...]:
    found = getattr(module, name, default)
    if isinstance(found, str) or not isinstance(found, list | tuple | set | frozenset):
        raise _wrong(path, f"{name} is {found!r}.", "It is a list of names of inputs.")
    for one in found:
        if one not in given:
            raise _wrong(path, f"{name} has {one!r}.", f"Inputs are {', '.join(given)}.")
    return tuple(found) if not isinstance(found, set | frozenset) else tuple(sorted(found))


def _accepts(
    function: Callable[..., Any],
    given: dict[str, Any],
    name: str,
    path: Path,
    config: Config | None = None,
) -> None:
    try:
        inspect.signature(function).bind(**given, **(config or {}))
    except ValueError:  # it has none that can be read
        return
    except TypeError as error:
        called = ", ".join((*given, *(config or {})))
        found = f"{name} cannot be called with {called}: {error}."
        raise _wrong(path, found, "It takes the inputs and its configuration by name.") from error


def _candidates(module: ModuleType, path: Path, given: dict[str, Any]) -> Candidates:
    listed = getattr(module, "CANDIDATES", {})
    if not isinstance(listed, Mapping):
        raise _wrong(path, "CANDIDATES is no dictionary.", "It maps names to functions.")
    found: Candidates = {}
    for name, one in listed.items():
        function, space = one if isinstance(one, tuple) and len(one) == 2 else (one, None)
        if name in RESERVED:
            found_name = f"CANDIDATES has {name!r}, and {RESERVED[name]} is called so."
            raise _wrong(path, found_name, "Give it another name.")
        if not isinstance(name, str) or not callable(function):
            raise _wrong(
                path,
                f"CANDIDATES[{name!r}] is a {type(function).__name__}.",
                "It is a function, or a function and a list of its configurations.",
            )
        configs = [{}] if space is None else list(space) if isinstance(space, list | tuple) else []
        if not configs or not all(isinstance(c, Mapping) for c in configs):
            raise _wrong(
                path,
                f"the space of CANDIDATES[{name!r}] is no list of dictionaries, or an empty one.",
                'Write it as [{"block": 64}, {"block": 128}].',
            )
        with _said(path, f"CANDIDATES[{name!r}]"):
            found_space = space_of(function, given, None if space is None else configs)
        _accepts(function, given, f"CANDIDATES[{name!r}]", path, split(found_space[0])[0])
        found[name] = (function, tuple(dict(c) for c in found_space))
    return found


def own_function(module: ModuleType, name: str) -> Callable[..., Any]:
    """A candidate of a file that was checked, by name.

    Raises:
        KeyError: it has none of this name.
    """
    one = module.CANDIDATES[name]
    return one[0] if isinstance(one, tuple) else one  # type: ignore[no-any-return]


def _tried(problem: FunctionProblem, given: dict[str, Any], path: Path) -> None:
    with _said(path, f"reference or baseline fails for {problem.workloads[0].name}"):
        problem.expected(problem.workloads[0], given)


class _said:  # noqa: N801
    """Names the part of the file that raised."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, UsageError):
            raise UsageError(f"{self._path}: {error.found}", error.remedy) from error
        if isinstance(error, Exception):
            text = shortened(f"{type(error).__name__}: {error}", 300)
            raise _wrong(self._path, f"{self._what}: {text}.", "Run it alone first.") from error
