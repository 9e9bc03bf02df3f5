"""Any candidate of any problem as a recipe: a fresh process builds its launch anew and times it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_compass.api.problem_candidates import (
    BASELINE_FORMAT,
    file_runner,
    is_candidate_file,
    load_source,
)
from kernel_compass.api.problem_files import FileProblem
from kernel_compass.api.problem_models import SEED, STATE, ModelCandidate, is_model_file
from kernel_compass.api.product_recipes import product_recipe
from kernel_compass.api.timed_results import renewing
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import MeasurementCause, MeasurementError, UsageError
from kernel_compass.kernels.library import torch_library
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.simulated import SimulatedDevice, SimulatedOperand
from kernel_compass.measurement.subject import (
    COLD_L2_MULTIPLE,
    MOST_SETS,
    ROTATION_BYTES,
    Renewed,
    Subject,
    set_count,
)
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate

BASELINE = Candidate("cublas_bf16", format=BASELINE_FORMAT, source="torch")
"""What products are measured against."""
SUBJECT = f"{__name__}:file_subject"


def problem_recipe(
    source: ProblemSource,
    workload: ProblemWorkload,
    candidate: Candidate | None,
    sha256: str | None = None,
) -> Recipe:
    """The recipe of a candidate, or of the problem's baseline.

    Args:
        source: which problem.
        workload: its sizes.
        candidate: `None` = the baseline.
        sha256: of the candidate's own file, where it has one.

    Raises:
        UsageError: the workload is none of this problem.
    """
    if source.sha256 is None:
        if workload.product is None:
            raise UsageError(f"{workload.name} is no product.", "Name its workload with its op.")
        return product_recipe(workload.product, candidate or BASELINE)
    arguments = {
        "source": plain(source),
        "workload": plain(workload),
        "candidate": None if candidate is None else plain(candidate),
        "sha256": sha256,
    }
    return Recipe(SUBJECT, arguments)


def file_subject(
    device: TimingDevice,
    source: Mapping[str, Any],
    workload: Mapping[str, Any],
    candidate: Mapping[str, Any] | None,
    sha256: str | None = None,
) -> Subject:
    """A candidate of a problem's file, or its baseline, with inputs drawn anew on the device.

    What the file calls streamed is rotated; all other tensors are warm in every regime. On a
    simulated device the launch moves the bytes of its inputs, drawn on the CPU.

    Raises:
        UsageError: the file, or the candidate, is none.
    """
    torch, found = torch_library(), reshaped(source, ProblemSource)
    sizes = reshaped(workload, ProblemWorkload)
    chosen = None if candidate is None else reshaped(candidate, Candidate)
    where = _where(device)
    loaded = load_source(torch, found, where)
    seed = int(torch.randint(1, 1 << 30, ()))  # the process was seeded: another one each time
    given = loaded.problem.inputs(sizes, seed)
    if chosen is not None:
        runner = file_runner(torch, loaded, chosen, where, sha256)
    if isinstance(device, SimulatedDevice):
        return _simulated(torch, device, loaded, given)
    streamed = loaded.description.streamed

    def renew(
        named: Callable[[Sequence[Any]], Mapping[str, Any]], changing: Sequence[str]
    ) -> Callable[[Sequence[Any]], Renewed] | None:
        if chosen is None:
            return None
        return renewing(torch, loaded.problem, sizes, named, changing)

    if is_model_file(loaded.module):
        made = runner if chosen is not None else _model(torch, loaded, where)
        return _of_model(torch, device, made, given, streamed, renew)
    call = loaded.problem.baseline if chosen is None else _calling(runner, loaded.problem.held)
    return _of_function(torch, call, given, streamed, renew)


def _where(device: TimingDevice) -> str:
    """Where its operands are made."""
    return "cpu" if isinstance(device, SimulatedDevice) else f"cuda:{device.index}"  # type: ignore[attr-defined]


_Renew = Callable[
    [Callable[[Sequence[Any]], Mapping[str, Any]], Sequence[str]],
    Callable[[Sequence[Any]], Renewed] | None,
]


def _calling(runner: Any, held: frozenset[str]) -> Callable[[Mapping[str, Any]], Any]:
    """A function's runner passes its held operands on: all of them may come with each call."""

    def call(named: Mapping[str, Any]) -> Any:
        state = runner.prepare({n: v for n, v in named.items() if n in held})
        return runner.run(state, {n: v for n, v in named.items() if n not in held})

    return call


def _of_function(
    torch: Any,
    call: Callable[[Mapping[str, Any]], Any],
    given: Mapping[str, Any],
    streamed: Sequence[str],
    renew: _Renew,
) -> Subject:
    names = _split(torch, given, streamed)
    order = (*names[0], *names[1])
    values = {n: v for n, v in given.items() if n not in order}

    def named(operands: Sequence[Any]) -> dict[str, Any]:
        return {**values, **dict(zip(order, operands, strict=True))}

    def run(*operands: Any) -> object:
        with torch.no_grad():
            return call(named(operands))

    first, rest = (tuple(given[n] for n in part) for part in names)
    return Subject(run, first, rest, renew=renew(named, order))


def _split(
    torch: Any, given: Mapping[str, Any], streamed: Sequence[str]
) -> tuple[list[str], list[str]]:
    tensors = [n for n, v in given.items() if isinstance(v, torch.Tensor)]
    first = [n for n in tensors if n in streamed]
    return first, [n for n in tensors if n not in streamed]


def _model(torch: Any, loaded: FileProblem, where: str) -> ModelCandidate:
    """The problem's own `Model`, built as a candidate is."""
    return ModelCandidate(torch, loaded.module, loaded.module, where, "Model")


def _of_model(
    torch: Any,
    device: TimingDevice,
    runner: Any,
    given: Mapping[str, Any],
    streamed: Sequence[str],
    renew: _Renew,
) -> Subject:
    """Copies of the whole module rotate: whatever it made of its weights is copied with it."""
    held = {n: v for n, v in given.items() if n.startswith(STATE) or n == SEED}
    free = {n: v for n, v in given.items() if n not in held}
    module = runner.prepare(held)
    moving = [n for n, v in free.items() if n in streamed and isinstance(v, torch.Tensor)]
    one = tensors_of(torch, (module, [free[n] for n in moving]))
    total = sum(device.bytes_of(tensor) for tensor in one)
    calls = [(module, free)]
    for _ in range(_sets(total, device) - 1):
        changed = {n: v.clone() if n in moving else v for n, v in free.items()}
        calls.append((copy.deepcopy(module), changed))
    sets = [tensors_of(torch, (m, [f[n] for n in moving])) for m, f in calls]
    known = {id(s[0]): call for s, call in zip(sets, calls, strict=True)} if one else {}

    def named(operands: Sequence[Any]) -> dict[str, Any]:
        found = known.get(id(operands[0])) if operands else calls[0]
        return {**held, **(found or calls[0])[1]}

    def run(*operands: Any) -> object:
        found = known.get(id(operands[0])) if operands else calls[0]
        if found is None:
            raise MeasurementError(
                MeasurementCause.NOT_COLD,
                "A copy of the model's tensors is no copy of the model.",
                "Leave the rotation to the sets that the subject brings.",
            )
        return runner.run(found[0], found[1])

    changing = [n for n, v in free.items() if isinstance(v, torch.Tensor)]
    return Subject(run, sets[0], sets=tuple(sets[1:]), renew=renew(named, changing))


def _sets(total: int, device: TimingDevice) -> int:
    least = COLD_L2_MULTIPLE * device.l2_bytes
    if total * MOST_SETS < least:  # no number of copies would do: it is flushed
        return 1
    count = min(set_count(total, max(least, ROTATION_BYTES)), MOST_SETS)
    while count > 2 and count * total > device.free_bytes() * 9 // 10:
        count //= 2
    return count


def tensors_of(torch: Any, found: Any) -> tuple[Any, ...]:
    """All tensors that lie in a module's attributes, lists and dictionaries; each once.

    In the same order for a copy.
    """
    tensors: list[Any] = []
    seen: set[int] = set()
    waiting = [found]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            tensors.append(one)
        elif isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple | set):
            waiting += one
        elif isinstance(one, torch.nn.Module):
            waiting += vars(one).values()
    return tuple(tensors)


def _simulated(
    torch: Any, device: SimulatedDevice, loaded: FileProblem, given: Mapping[str, Any]
) -> Subject:
    names = _split(torch, given, loaded.description.streamed)
    first, rest = (
        tuple(SimulatedOperand(given[n].numel() * given[n].element_size()) for n in part)
        for part in names
    )
    return Subject(device.launch, first, rest)


__all__ = ["BASELINE", "file_subject", "is_candidate_file", "problem_recipe", "tensors_of"]
