"""Products with constant weights that have the same input: where they could be one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kernel_compass.analysis.step_runs import op_bytes
from kernel_compass.optimizer.step_gathering import Gathered, at_budget, us_a_byte
from kernel_compass.optimizer.step_kinds import knows_constants, step_product
from kernel_compass.records.step_capture import StepCapture, StepKernel, StepOp, StepTensor
from kernel_compass.records.step_loop import PlaceKind
from kernel_compass.records.workload import Op, Workload

_Input = tuple[int, tuple[int, ...], tuple[int, ...], str]


@dataclass(frozen=True)
class SharedInput:
    """Some products of one input."""

    ops: tuple[StepOp, ...]
    workload: Workload
    """Of all their columns."""
    columns: tuple[int, ...]

    @property
    def name(self) -> str:
        """`linear 16x6144x4096 of 4096+1024+1024`."""
        return f"{self.workload.shape_text} of {'+'.join(map(str, self.columns))}"


def shared_inputs(capture: StepCapture) -> Iterator[SharedInput]:
    """Linear layers called with the same tensor, unwritten between them, in the step's order."""
    if not knows_constants(capture):
        return
    runs: dict[_Input, list[StepOp]] = {}
    for op in capture.ops:
        work = step_product(op)
        if work is not None and work.op is Op.LINEAR and _is_layer(op):
            runs.setdefault(_input_of(op), []).append(op)
        if op.writes and op.inputs:
            for key in [one for one in runs if one[0] == op.inputs[0].storage]:
                yield from _made(runs.pop(key))
    for run in runs.values():
        yield from _made(run)


def of_shared(capture: StepCapture, budget_pct: float) -> Iterable[Gathered]:
    """A place for each; the same sizes in another layer are the same place."""
    found: dict[tuple[str, str], Gathered] = {}
    kernels: dict[int, list[StepKernel]] = {}
    for kernel in capture.kernels:
        if kernel.op is not None:
            kernels.setdefault(kernel.op, []).append(kernel)
    unit = us_a_byte(capture)
    for one in shared_inputs(capture):
        dtype = one.ops[0].inputs[0].dtype
        made = Gathered(
            PlaceKind.SHARED, one.name, workload=one.workload, dtype=dtype, columns=one.columns
        )
        place = found.setdefault((one.name, dtype), made)
        for op in one.ops:
            place.at(op)
            if not capture.kernels:
                place.add(op_bytes(op) * unit, None, 1.0)
            for kernel in kernels.get(op.index, ()):
                floor = None if kernel.floor_basis == "traffic" else kernel.floor_us
                floor = at_budget(floor, step_product(op), budget_pct)
                place.add(kernel.time_us, floor, kernel.launches)
    return found.values()


def _made(run: list[StepOp]) -> Iterator[SharedInput]:
    weights = [_operands(op)[1] for op in run]
    if len(run) < 2 or len({(w.storage, w.strides, w.shape) for w in weights}) != len(run):
        return
    if len({weight.dtype for weight in weights}) != 1:
        return
    products = [step_product(op) for op in run]
    columns = tuple(one.columns for one in products if one is not None)
    first = products[0]
    assert first is not None
    yield SharedInput(tuple(run), replace(first, columns=sum(columns)), columns)


def _operands(op: StepOp) -> tuple[StepTensor, ...]:
    return op.inputs[1:] if op.name.rpartition("::")[2] in ("addmm", "baddbmm") else op.inputs


def _input_of(op: StepOp) -> _Input:
    x = _operands(op)[0]
    return x.storage, x.shape, x.strides, x.dtype


def _is_layer(op: StepOp) -> bool:
    """Whether the weight lies as a layer's does, `(N, K)`: others are not put together."""
    if op.name.rpartition("::")[2] == "linear":
        return True
    weight = _operands(op)[1]
    return weight.strides[0] == 1 and weight.strides[1] == weight.shape[0]
