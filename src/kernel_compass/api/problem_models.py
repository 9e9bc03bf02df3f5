"""Problems as KernelBench writes them: `Model`, `get_inputs`, `get_init_inputs`, and `ModelNew`.

Weights are drawn anew for every draw of inputs, also those that are one number before training. A
candidate gets those of its parameters that have a name and shape of the model's, and is built with
the model's seed, so that its others are drawn as the model's are.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.problem import ERROR_BUDGET_PCT, ProblemDescription, ProblemWorkload
from kernel_compass.validation.function_problem import FunctionProblem, ProblemFunctions

STATE = "state."
"""Before the names of parameters and buffers among the inputs."""
SEED = "seed_of_weights"
BUDGET = ERROR_BUDGET_PCT / 100.0
KEPT = 12
"""Models that are kept: those of the draws of one judgement, in either precision."""
PARTS = ("get_inputs", "get_init_inputs")
RUNNING = ("running_mean", "running_var")
"""Buffers that training moves."""
_WORKLOAD = ProblemWorkload("as it is", {})


def is_model_file(module: ModuleType) -> bool:
    """Whether it is of this kind rather than of plain functions."""
    return hasattr(module, "Model") and not hasattr(module, "WORKLOADS")


def is_model_source(path: Path) -> bool:
    """The same by its text: nothing is run. What is no Python file is none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    found = {one.name for one in tree.body if isinstance(one, ast.ClassDef | ast.FunctionDef)}
    assigned = {
        target.id
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    return {"Model", *PARTS} <= found and "WORKLOADS" not in assigned


def model_problem(
    torch: Any, module: ModuleType, name: str, device: str
) -> tuple[FunctionProblem, ProblemDescription]:
    """The problem, and what the parent process gets to know.

    Raises:
        UsageError: a part is missing, or the model does not run.
    """
    for part in ("Model", *PARTS):
        if not callable(getattr(module, part, None)):
            raise UsageError(
                f"The problem {name} has no {part}.",
                "A file with Model needs get_inputs and get_init_inputs, too.",
            )
    parts = _Parts(torch, module, device)
    given = _running(name, lambda: parts.inputs({}, torch.Generator(device).manual_seed(1)))
    held = frozenset(one for one in given if one.startswith(STATE) or one == SEED)
    functions = ProblemFunctions(parts.inputs, parts.reference, parts.baseline)
    problem = FunctionProblem(
        torch,
        name,
        [_WORKLOAD],
        functions,
        BUDGET,
        held,
        device=device,
        also=(module.Model.forward,),
    )
    _running(name, lambda: problem.expected(_WORKLOAD, given))
    streamed = tuple(n for n, v in given.items() if isinstance(v, torch.Tensor))
    return problem, ProblemDescription(name, (_WORKLOAD,), streamed, 100.0 * BUDGET)


class ModelCandidate:
    """`ModelNew` of a file.

    Args:
        torch: the module.
        problem: the module of the problem's file, for its `get_init_inputs`.
        candidate: the module that has `ModelNew`.
        device: where it runs.
        name: of the class; `Model` builds the problem's own as candidates are built.

    Raises:
        UsageError: there is no `ModelNew`.
    """

    def __init__(
        self,
        torch: Any,
        problem: ModuleType,
        candidate: ModuleType,
        device: str,
        name: str = "ModelNew",
    ) -> None:
        self._torch, self._problem, self._device = torch, problem, device
        self._kind = getattr(candidate, name, None)
        if not callable(self._kind):
            path = Path(getattr(candidate, "__file__", "") or "the file").name
            raise UsageError(f"{path} has no {name}.", f"A candidate for a Model is a {name}.")

    def prepare(self, held: Mapping[str, Any]) -> Any:
        """The module with the model's weights."""
        made = _made(self._torch, self._kind, self._problem, held[SEED], self._device)
        model = _made(self._torch, self._problem.Model, self._problem, held[SEED], self._device)
        _load(self._torch, made, held, model)
        return made.eval()

    def run(self, state: Any, given: Mapping[str, Any]) -> Any:
        """Call it."""
        with self._torch.no_grad():
            return state(*given.values())


class _Parts:
    """The functions of a problem, of a model."""

    def __init__(self, torch: Any, module: ModuleType, device: str) -> None:
        self._torch, self._module, self._device = torch, module, device
        self._models: dict[Any, Any] = {}

    def inputs(self, _workload: Mapping[str, Any], generator: Any) -> dict[str, Any]:
        torch = self._torch
        seeds = torch.randint(1, 1 << 30, (2,), generator=generator, device=generator.device)
        weights, drawn = (int(one) for one in seeds)
        with _seeded(torch, drawn):
            given = list(self._module.get_inputs())
        moved = [v.to(self._device) if isinstance(v, torch.Tensor) else v for v in given]
        model = _made(torch, self._module.Model, self._module, weights, self._device)
        with _seeded(torch, weights):
            learned = _learned(torch, model)
        state = {STATE + name: value for name, value in learned.items()}
        return {**dict(zip(self._names(len(moved)), moved, strict=True)), **state, SEED: weights}

    def baseline(self, **given: Any) -> Any:
        return self._called(given, self._torch.float32)

    def reference(self, **given: Any) -> Any:
        torch = self._torch
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # what it makes on the way is as precise
        try:
            return self._called(given, torch.float64)
        finally:
            torch.set_default_dtype(before)

    def _called(self, given: dict[str, Any], dtype: Any) -> Any:
        model = self._built(given[SEED], dtype)
        state = {n.removeprefix(STATE): v for n, v in given.items() if n.startswith(STATE)}
        free = tuple(v for n, v in given.items() if not n.startswith(STATE) and n != SEED)
        with self._torch.no_grad():
            return self._torch.func.functional_call(model, state, free)

    def _built(self, seed: int, dtype: Any) -> Any:
        """The model, built once a seed: a call of the baseline is its forward alone."""
        key = (seed, dtype)
        if key not in self._models:
            made = _made(self._torch, self._module.Model, self._module, seed, self._device)
            while len(self._models) >= KEPT:
                self._models.pop(next(iter(self._models)))
            wide = dtype == self._torch.float64
            self._models[key] = made.double().eval() if wide else made.eval()
        return self._models[key]

    def _names(self, count: int) -> list[str]:
        """As `forward` calls them."""
        try:
            names = list(inspect.signature(self._module.Model.forward).parameters)[1:]
        except (TypeError, ValueError):
            names = []
        return names[:count] if len(names) >= count else [f"input_{i}" for i in range(count)]


def _made(torch: Any, kind: Any, module: ModuleType, seed: int, device: str) -> Any:
    with _seeded(torch, seed):
        given = module.get_init_inputs()
    with _seeded(torch, seed):
        made = kind(**given) if isinstance(given, dict) else kind(*given)
    return made.to(device)


def _learned(torch: Any, model: Any) -> dict[str, Any]:
    """Its state; what is one number everywhere before training is another in each place.

    A norm's weights of 1, its biases and running means of 0 leave no trace in a result: who forgets
    them would be right.
    """
    state = {name: value.detach() for name, value in model.state_dict().items()}
    changed = {}
    for name in _untrained(model):
        value = state[name]
        by = torch.rand(value.shape, device=value.device, dtype=value.dtype) - 0.5
        changed[name] = value * (1.0 + by) + by * (value == 0)
    return {**state, **changed}


def _untrained(made: Any) -> Iterator[str]:
    """Names of parameters and running statistics that are one number everywhere."""
    parameters = made.named_parameters(remove_duplicate=False)
    trained = {name for name, one in parameters if one.requires_grad}
    for name, value in made.state_dict().items():
        moves = name in trained or name.rpartition(".")[2] in RUNNING
        is_number = moves and value.dtype.is_floating_point and value.numel() > 0
        if is_number and bool((value == value.flatten()[0]).all()):
            yield name


def _load(torch: Any, made: Any, given: Mapping[str, Any], model: Any) -> None:
    """Into a candidate: by name, and else what is as untrained in the model, in its order."""
    own, theirs = made.state_dict(), model.state_dict()
    names = {n: n for n in own if n in theirs and own[n].shape == theirs[n].shape}
    left = {name: _kind(model, name) for name in _untrained(model) if name not in names}
    for name in _untrained(made):
        kind = _kind(made, name)
        found = next((other for other, one in left.items() if one == kind), None)
        if name not in names and found is not None:
            left.pop(found)
            names[name] = found
    with torch.no_grad():
        for name, other in names.items():
            own[name].copy_(given[STATE + other].reshape(own[name].shape))


def _kind(module: Any, name: str) -> tuple[bool, int, float]:
    """Of what is one number: a parameter or a buffer, how many, which; axes may lie otherwise."""
    value = module.state_dict()[name]
    is_parameter = name in dict(module.named_parameters(remove_duplicate=False))
    return is_parameter, int(value.numel()), float(value.flatten()[0])


@contextmanager
def _seeded(torch: Any, seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _running(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except UsageError:
        raise
    except Exception as error:
        text = shortened(f"{type(error).__name__}: {error}", 300)
        raise UsageError(
            f"The model of {name} does not run: {text}.", "Run it alone first."
        ) from error
