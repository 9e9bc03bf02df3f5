"""Runs of small operators in a step: what one kernel could do, where no kernel times are known.

On a CPU nothing says how long an operator takes. What it moves says it roughly: an operator that is
no product, attention, convolution, sort or the like streams its operands once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from kernel_compass.records.step_capture import SourceLine, StepCapture, StepOp, StepTensor

HEAVY = (
    "mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "convolution", "scaled_dot_product",
    "_scaled_dot_product", "flash_attention", "efficient_attention", "sort", "topk", "embedding",
    "nonzero", "index_put", "_fft", "linalg", "cholesky", "multinomial", "mkldnn", "mkl",
)  # fmt: skip
VIEWS = frozenset(
    [
        "view", "_unsafe_view", "reshape", "transpose", "t", "permute", "expand", "unsqueeze",
        "squeeze", "slice", "select", "split", "chunk", "detach", "alias", "as_strided", "narrow",
        "unbind", "split_with_sizes", "_reshape_alias", "movedim", "diagonal", "unfold",
        "lift_fresh",
    ]
)  # fmt: skip
LEAST = 2
"""Operators that make a run."""
_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "complex64": 8, "complex128": 16}
_BYTES |= {"bfloat16": 2, "float16": 2, "int16": 2}


@dataclass(frozen=True)
class OpRun:
    """Operators one after the other that one kernel could do."""

    ops: tuple[int, ...]
    bytes: int
    """That they move one by one."""
    outer_bytes: int
    """That one kernel would: what comes from before the run or is used after it."""
    outer_read_bytes: int
    """Those of them that it would read."""
    module: str | None
    """The innermost one that holds all of them."""
    first_line: SourceLine | None
    last_line: SourceLine | None


def is_view(op: StepOp) -> bool:
    """Whether it moves nothing."""
    return op.name.removeprefix("aten::").rstrip("_") in VIEWS


def is_heavy(op: StepOp) -> bool:
    """Whether it does more than stream its operands."""
    return op.name.rpartition("::")[2].startswith(HEAVY)


def tensor_bytes(tensor: StepTensor) -> int:
    """Of its elements, each once: a dimension that is expanded is not stored."""
    sizes = (
        size
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        if stride or size < 2
    )
    return prod(sizes) * _BYTES.get(tensor.dtype, 1)


def op_bytes(op: StepOp) -> int:
    """That an operator moves: every operand once; nothing for a view."""
    return 0 if is_view(op) else sum(map(tensor_bytes, (*op.inputs, *op.outputs)))


def op_runs(capture: StepCapture) -> tuple[OpRun, ...]:
    """The runs of a step, in its order; operators of regions are in none."""
    return runs_of(capture.ops)


def runs_of(ops: Sequence[StepOp]) -> tuple[OpRun, ...]:
    """The same of operators, each with its place among them as its index."""
    return tuple(_run(ops, inside) for inside in _runs(ops))


def common_module(modules: Sequence[str | None]) -> str | None:
    """The innermost module that holds all of these; `None` = one is outside of any."""
    if not modules or any(one is None for one in modules):
        return None
    parts = [one.split(".") if one else [] for one in modules if one is not None]
    shared: list[str] = []
    for words in zip(*parts, strict=False):
        if len(set(words)) > 1:
            break
        shared.append(words[0])
    return ".".join(shared)


def _runs(ops: Sequence[StepOp]) -> Iterator[list[StepOp]]:
    found: list[StepOp] = []
    for op in ops:
        if is_view(op):
            continue
        if is_heavy(op) or op.region is not None:
            if len(found) >= LEAST:
                yield found
            found = []
        else:
            found.append(op)
    if len(found) >= LEAST:
        yield found


def _run(everything: Sequence[StepOp], ops: list[StepOp]) -> OpRun:
    inside = {one.index for one in ops}
    made = {tensor.storage for op in ops for tensor in op.outputs}
    later = {
        tensor.storage for op in everything if op.index > ops[-1].index for tensor in op.inputs
    }
    outer: dict[tuple[int, bool], int] = {}
    for op in ops:
        for tensor in op.inputs:
            if tensor.storage not in made:
                outer[tensor.storage, False] = tensor_bytes(tensor)
        for tensor in op.outputs:
            if tensor.storage in later or op is ops[-1]:
                outer[tensor.storage, True] = tensor_bytes(tensor)
    return OpRun(
        tuple(sorted(inside)),
        sum(map(op_bytes, ops)),
        sum(outer.values()),
        sum(size for (_, written), size in outer.items() if not written),
        common_module([op.module for op in ops]),
        ops[0].line,
        ops[-1].line,
    )
