"""Runs of launch-bound kernels, and what fusing them could save at most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_compass.analysis.step_groups import groups_of
from kernel_compass.analysis.step_shares import workload_of
from kernel_compass.analysis.timeline_runs import FixedCost
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_capture import (
    RegionKind,
    SourceLine,
    StepCapture,
    StepKernel,
    StepOp,
    StepRegion,
    StepTensor,
)

FIXED = FixedCost.of(1.0)


def tensor(storage: int, *shape: int) -> StepTensor:
    strides, size = [], 1
    for n in reversed(shape):
        strides.insert(0, size)
        size *= n
    return StepTensor(shape, tuple(strides), "float16", "cuda", storage)


def line(n: int) -> SourceLine:
    return SourceLine("m.py", n, "forward")


def block() -> StepCapture:
    """mm, then add, mul, silu in a module, then mm: x(1) @ w(2) -> 3; 3 + 4 -> 5; 5 * 5 -> 6;
    silu 6 -> 7; 7 @ w(8) -> 9, of 16 x 64."""
    act = "layers.0.act"
    ops = (
        StepOp(0, "aten::mm", (tensor(1, 16, 64), tensor(2, 64, 64)), (tensor(3, 16, 64),)),
        StepOp(1, "aten::add", (tensor(3, 16, 64), tensor(4, 64)), (tensor(5, 16, 64),)),
        StepOp(2, "aten::mul", (tensor(5, 16, 64), tensor(5, 16, 64)), (tensor(6, 16, 64),)),
        StepOp(3, "aten::silu", (tensor(6, 16, 64),), (tensor(7, 16, 64),)),
        StepOp(4, "aten::mm", (tensor(7, 16, 64), tensor(8, 64, 64)), (tensor(9, 16, 64),)),
    )
    modules = ("layers.0.q", f"{act}.a", act, act, "layers.0.o")
    ops = tuple(
        replace(op, line=line(op.index), module=name) for op, name in zip(ops, modules, strict=True)
    )
    times = (30.0, 2.0, 2.0, 3.0, 2.5)
    kernels = tuple(
        StepKernel(op.name, time, 1.0, op=op.index, line=op.line, gap_us=4.0)
        for op, time in zip(ops, times, strict=True)
    )
    return StepCapture("m.py", "M.forward", Environment(Device()), ops, kernels=kernels)


def test_the_run_between_two_products() -> None:
    (group,) = groups_of(block(), FIXED)
    assert group.kernels == (1, 2, 3)  # the short mm after it is a product all the same
    assert group.time_us == pytest.approx(7.0)
    assert group.gap_us == pytest.approx(8.0)  # the gap before the run stays
    assert (group.first_line, group.last_line) == (line(1), line(3))
    assert group.module == "layers.0.act"
    # Reads 3 and the bias, writes 7, which the product reads; 5 and 6 stay inside.
    assert group.outer_bytes == 2 * (16 * 64 + 64 + 16 * 64)
    assert group.saves_at_most_us == pytest.approx(15.0 - 1.0)


def test_the_floor_is_the_time_of_the_outer_bytes() -> None:
    (group,) = groups_of(block(), FIXED, lambda size: size / 1000)
    assert group.saves_at_most_us == pytest.approx(15.0 - 4.224)


def test_what_is_returned_is_written() -> None:
    capture = block()
    capture = replace(capture, ops=capture.ops[:4], kernels=capture.kernels[:4])
    (group,) = groups_of(capture, FIXED)
    assert group.outer_bytes == 2 * (16 * 64 + 64 + 16 * 64)


def test_a_result_that_is_read_twice_later_counts_once_and_an_inner_one_too() -> None:
    capture = block()
    again = replace(capture.ops[4], inputs=(tensor(7, 16, 64), tensor(6, 16, 64)))
    capture = replace(capture, ops=(*capture.ops[:4], again))
    (group,) = groups_of(capture, FIXED)
    assert group.outer_bytes == 2 * (16 * 64 + 64 + 2 * 16 * 64)


def test_a_long_kernel_and_a_region_end_a_run() -> None:
    capture = block()
    slow = replace(capture.kernels[2], time_us=40.0)
    capture = replace(capture, kernels=(*capture.kernels[:2], slow, *capture.kernels[3:]))
    assert groups_of(capture, FIXED) == ()
    region = (StepRegion(0, RegionKind.COMPILED, "f", None),)
    inside = replace(block().kernels[2], op=None, region=0)
    capture = replace(
        block(), regions=region, kernels=(*block().kernels[:2], inside, *block().kernels[3:])
    )
    assert groups_of(capture, FIXED) == ()


def test_a_kernel_shorter_than_the_gap_before_it_is_launch_bound() -> None:
    capture = block()
    rare = replace(capture.kernels[2], time_us=12.0, gap_us=15.0)
    near = replace(rare, gap_us=11.0)
    with_rare = replace(capture, kernels=(*capture.kernels[:2], rare, *capture.kernels[3:]))
    with_near = replace(capture, kernels=(*capture.kernels[:2], near, *capture.kernels[3:]))
    assert [g.kernels for g in groups_of(with_rare, FIXED)] == [(1, 2, 3)]
    assert groups_of(with_near, FIXED) == ()


def test_one_operator_of_several_launches_is_a_run() -> None:
    capture = block()
    many = replace(capture.kernels[1], launches=4.0, time_us=8.0, gap_us=12.0)
    capture = replace(capture, kernels=(capture.kernels[0], many, capture.kernels[4]))
    (group,) = groups_of(capture, FIXED)
    assert group.kernels == (1,)
    assert group.gap_us == pytest.approx(9.0)


def test_the_largest_saving_comes_first_and_no_kernels_are_no_groups() -> None:
    one = block()
    second = [replace(k, time_us=k.time_us / 2) for k in one.kernels[1:]]
    both = replace(one, kernels=(*one.kernels, *second))
    savings = [group.saves_at_most_us for group in groups_of(both, FIXED)]
    assert len(savings) == 2
    assert savings == sorted(savings, reverse=True)
    assert groups_of(replace(one, kernels=()), FIXED) == ()


def test_products_of_operators() -> None:
    capture = block()
    found = workload_of(capture.ops[0])
    assert found is not None
    assert found.shape_text == "linear 16x64x64"
    bias = replace(
        capture.ops[0],
        name="aten::addmm",
        inputs=(tensor(1, 32), tensor(2, 16, 64), tensor(3, 64, 32)),
    )
    assert workload_of(bias).shape_text == "linear 16x32x64"  # type: ignore[union-attr]
    assert workload_of(capture.ops[1]) is None
    assert workload_of(replace(bias, inputs=bias.inputs[:1])) is None
    assert workload_of(replace(bias, name="aten::mm")) is None
