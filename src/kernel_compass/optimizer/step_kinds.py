"""What an operator of a step is, for whoever looks for something to change: a product, attention, a
copy."""

from __future__ import annotations

from kernel_compass.records.step_capture import StepCapture, StepOp
from kernel_compass.records.step_loop import PlaceKind
from kernel_compass.records.workload import Op, Workload

ATTENTION = ("scaled_dot_product", "attention")
COPIES = frozenset(["copy", "clone", "contiguous", "_to_copy", "cat"])


def kind_of(op: StepOp, assumed: bool = False) -> tuple[PlaceKind, str, Workload | None]:
    """What it is, what it is called by, and its workload where it is a product."""
    workload = step_product(op, assumed)
    if workload is not None:
        return PlaceKind.PRODUCT, workload.shape_text, workload
    bare = op.name.rpartition("::")[2]
    if any(word in bare for word in ATTENTION):
        shape = "x".join(map(str, op.inputs[0].shape)) if op.inputs else ""
        return PlaceKind.ATTENTION, f"attention {shape}".strip(), None
    if bare.rstrip("_") in COPIES or bare in COPIES:
        where = op.line.text if op.line else "an unknown line"
        return PlaceKind.COPY, f"{op.name} at {where}", None
    return PlaceKind.OTHER, op.name, None


def step_product(op: StepOp, assumed: bool = False) -> Workload | None:
    """The product with a constant weight that an operator computes; `None` = it is none.

    Args:
        op: of the step.
        assumed: take the second operand for a weight, as layers have it: what a trace was made of
            says nothing of contents.
    """
    name = op.name.rpartition("::")[2]
    tensors = op.inputs[1:] if name in ("addmm", "baddbmm") else op.inputs
    if name not in ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear") or len(tensors) < 2:
        return None
    x, weight = tensors[0], tensors[1]
    if not assumed and (not weight.constant or weight.unversioned or x.constant):
        return None
    if len(weight.shape) == 3 and len(x.shape) == 3 and name in ("bmm", "baddbmm", "matmul"):
        h, m, k = x.shape
        fits = weight.shape[:2] == (h, k)
        return Workload(Op.BMM, h, m, k, weight.shape[2]) if fits else None
    if len(weight.shape) != 2 or not x.shape or name in ("bmm", "baddbmm"):
        return None
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    k, n = reversed(weight.shape) if name == "linear" else weight.shape
    return Workload(Op.LINEAR, 1, rows, k, n) if x.shape[-1] == k and rows else None


def knows_constants(capture: StepCapture) -> bool:
    """Whether it says of any operand that it is constant; a trace says it of none."""
    return any(tensor.constant for op in capture.ops for tensor in op.inputs)
