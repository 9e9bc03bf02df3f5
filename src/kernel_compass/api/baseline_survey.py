"""A worker looks at one call of a problem's baseline: its operators, and what they could be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType
from typing import Any

from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.step_runs import is_heavy, is_view, runs_of
from kernel_compass.analysis.whole_baseline import read_bytes, saved_at_most_us
from kernel_compass.api.calibrations import calibration
from kernel_compass.api.problem_candidates import load_source
from kernel_compass.api.problem_models import is_model_file
from kernel_compass.api.targets import target_named
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.dispatch_mode import without_compiler
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers.compiled import cannot_compile
from kernel_compass.profiling.step_tensors import Storages, described
from kernel_compass.records.baseline_survey import BaselineSurvey
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_capture import StepOp
from kernel_compass.records.workload import Traffic

SEED = 1
NO_GPU = "this machine has no GPU"
IN_A_GRAPH = "what is timed is replayed in a CUDA graph already"
ALLOCATES = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty")


def survey_task(
    arguments: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """In a worker: call the baseline of a problem's file once, and look at its operators.

    Args:
        arguments: those of all tasks, `workload`.
        tell: told when the file was run.

    Returns:
        `survey`: the fields of a `BaselineSurvey`.
    """
    torch, device = torch_library(), arguments["device"]
    where = CPU if device == SIMULATED else device
    loaded = load_source(torch, reshaped(arguments["source"], ProblemSource), where)
    tell({"phase": "run"})
    no_graph = NO_GPU if where == CPU else IN_A_GRAPH
    if is_model_file(loaded.module):
        why = "a model's forward pass is made faster as a program's step is"
        return {"survey": plain(BaselineSurvey(0, 0, 0, 0, 0, 0, None, why, no_graph))}
    given = loaded.problem.inputs(reshaped(arguments["workload"], ProblemWorkload), SEED)
    ops = operators_of(torch, lambda: loaded.problem.baseline(given))
    runs = runs_of(ops)
    read = sum(map(read_bytes, ops))
    inside = [ops[index] for run in runs for index in run.ops]
    no_fusion = cannot_compile(target_named(where))
    if not isinstance(loaded.module.baseline, FunctionType):
        no_fusion = "its baseline is no plain function"
    if not runs:
        no_fusion = "its baseline has no two small operators one after the other"
    survey = BaselineSurvey(
        len(ops),
        len(ops) - len(inside) + len(runs),
        len(runs),
        read,
        read - sum(map(read_bytes, inside)) + sum(run.outer_read_bytes for run in runs),
        sum(map(is_heavy, ops)),
        _saved_us(ops, arguments["calibration"]),
        no_fusion,
        no_graph,
    )
    return {"survey": plain(survey)}


def operators_of(torch: Any, call: Callable[[], Any]) -> tuple[StepOp, ...]:
    """The operators of a call that launch something, in order."""
    base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode
    storages = Storages(torch)
    found: list[StepOp] = []

    def seen(values: Any) -> tuple[Any, ...]:
        leaves = import_module("torch.utils._pytree").tree_leaves(values)
        tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
        kept.extend(tensors)  # so that no other takes its memory meanwhile
        return tuple(described(one, storages) for one in tensors)

    kept: list[Any] = []

    @without_compiler
    class Look(base):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            name = str(function._schema.name)
            op = StepOp(len(found), name, seen((args, kwargs or {})), seen(result))
            if not is_view(op) and name not in ALLOCATES:
                found.append(op)
            return result

    with torch.no_grad(), Look():
        call()
    return tuple(found)


def _saved_us(ops: tuple[StepOp, ...], name: str | None) -> float | None:
    if name is None:
        return None
    floors = Floors(calibration(name))

    def floor_us(read: int, written: int) -> float | None:
        found = floors.of(Traffic(0, read, written, 0), Regime.WARM)
        return None if found is None else found.time_us

    return saved_at_most_us(ops, floor_us)
