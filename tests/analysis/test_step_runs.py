"""Runs of small operators where no kernel times are known."""

from __future__ import annotations

from kernel_compass.analysis.step_runs import common_module, op_bytes, op_runs
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_capture import SourceLine, StepCapture, StepOp, StepTensor


def tensor(storage, *shape, strides=None):
    found, count = [], 1
    for size in reversed(shape):
        found.insert(0, count)
        count *= size
    return StepTensor(tuple(shape), tuple(strides or found), "float32", "cpu", storage)


def op(index, name, inputs, outputs, module="norm"):
    line = SourceLine("model.py", index + 1, "forward")
    return StepOp(index, name, tuple(inputs), tuple(outputs), (), line, module)


def capture(*ops):
    return StepCapture("step.py", "step", Environment(Device()), ops)


def test_a_run_is_what_lies_between_products_views_left_out():
    a, b, c, d, e = (tensor(n, 8, 8) for n in range(5))
    found = op_runs(
        capture(
            op(0, "aten::mm", [a, b], [c]),
            op(1, "aten::mul", [c, c], [d]),
            op(2, "aten::view", [d], [d]),
            op(3, "aten::add", [d, a], [e]),
            op(4, "aten::mm", [e, b], [c]),
            op(5, "aten::relu", [c], [d]),
        )
    )
    (run,) = found
    assert run.ops == (1, 3)  # one alone, at the end, has nothing to be fused with
    # one by one: c, d written; d, a read, e written. As one: c and a read, e written
    assert (run.bytes, run.outer_bytes) == (5 * 256 + 256, 3 * 256)
    assert (run.first_line.line, run.last_line.line) == (2, 4)


def test_what_is_used_later_has_to_be_written_all_the_same():
    a, b, c, d = (tensor(n, 8, 8) for n in range(4))
    ops = [
        op(0, "aten::exp", [a], [b]),
        op(1, "aten::neg", [b], [c]),
        op(2, "aten::mm", [c, b], [d]),
    ]
    (run,) = op_runs(capture(*ops))
    assert run.outer_bytes == 3 * 256  # a read, b and c written


def test_an_expanded_dimension_is_not_read():
    wide = tensor(0, 64, 64, strides=(1, 0))
    assert op_bytes(op(0, "aten::neg", [wide], [tensor(1, 64, 64)])) == 64 * 4 + 64 * 64 * 4


def test_the_innermost_module_that_holds_all():
    assert common_module(["layers.0.attn", "layers.0.mlp"]) == "layers.0"
    assert common_module(["", "norm"]) == ""
    assert common_module(["a", None]) is None
    assert common_module([]) is None
