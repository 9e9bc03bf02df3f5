"""Where a step's time goes, on steps whose parts are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optimizer.step_samples import decode_capture, groups_of, line, op, tensor

from kernel_compass.optimizer.step_kinds import step_product
from kernel_compass.optimizer.step_selecting import select_again, select_places, worked_on
from kernel_compass.records.selection import PassedOver
from kernel_compass.records.step_capture import RegionKind, StepKernel, StepRegion
from kernel_compass.records.step_loop import PlaceKind
from kernel_compass.records.workload import Op, Workload


def places(capture, groups=(), budget=1.0, least=0.005):
    return select_places(capture, groups, least, budget)


def named(found, kind):
    return next(one for one in found if one.kind is kind)


def test_shares_and_gains_are_amdahls():
    capture = decode_capture()
    found = places(capture, groups_of(capture))
    idle = named(found, PlaceKind.IDLE)
    assert found[0] is idle
    assert idle.selected.share == pytest.approx(500 / 662)
    assert idle.selected.gain == pytest.approx(662 / 162)
    group = named(found, PlaceKind.GROUP)
    assert group.selected.gain == pytest.approx(662 / (662 - 15 + 3))
    assert group.saves_at_most_us == 12.0
    triton = named(found, PlaceKind.TRITON)
    assert triton.selected.gain == pytest.approx(662 / (662 - 40 + 20))
    # in a group alone: not a place of its own as well
    assert not any(one.kind is PlaceKind.OTHER for one in found)


def test_every_part_of_the_time_is_in_one_place():
    capture = decode_capture()
    found = places(capture, groups_of(capture))
    gaps = 3.0  # of the group; they are idle time too
    assert sum(one.time_us for one in found) == pytest.approx(662 + gaps)


def test_a_product_whose_weights_may_be_smaller_has_a_lower_floor():
    capture = decode_capture(idle_us=0.0)
    tight = named(places(capture, budget=0.1), PlaceKind.PRODUCT)
    loose = named(places(capture, budget=1.0), PlaceKind.PRODUCT)
    assert tight.floor_us == 50.0
    assert loose.floor_us == pytest.approx(25.0, rel=0.01)
    assert (loose.workload, loose.dtype) == (Workload(Op.LINEAR, 1, 16, 14336, 4096), "bfloat16")


def test_a_split_product_has_the_floor_of_its_parts_together():
    capture = decode_capture(idle_us=0.0)
    reduce = StepKernel("splitKreduce_kernel", 2.0, 1, 3, floor_us=None)
    found = places(replace(capture, kernels=(*capture.kernels, reduce)), budget=0.1)
    product = named(found, PlaceKind.PRODUCT)
    assert (product.time_us, product.floor_us) == (62.0, 50.0)


def test_what_is_small_or_at_its_floor_is_passed_over_with_the_reason():
    capture = decode_capture(idle_us=0.0)
    kernels = (*capture.kernels[:4], replace(capture.kernels[4], floor_us=49.9))
    tiny = StepKernel("fill", 0.1, 1, None, floor_us=0.05)
    found = places(replace(capture, kernels=(*kernels, tiny), step_us=122.0))
    attention = named(found, PlaceKind.ATTENTION)
    assert attention.selected.passed_over is PassedOver.AT_ITS_FLOOR
    assert named(found, PlaceKind.OTHER).selected.passed_over is PassedOver.SMALL_SHARE
    assert not worked_on(attention)
    assert [worked_on(one) for one in found] == sorted(map(worked_on, found), reverse=True)


def test_wide_kernels_one_after_the_other_are_one_candidate():
    """Prefill: no kernel costs its launch, and each reads what the one before wrote."""
    x, y, z = (tensor(2048, 4096, storage=n) for n in range(3))
    weight = tensor(4096, 4096, storage=9, constant=True)
    ops = (
        op(0, "aten::mul", [x, x], [y], "norm", 20),
        op(1, "aten::exp", [y], [z], "norm", 21),
        op(2, "aten::mm", [z, weight], [x], "", 30),
    )
    kernels = tuple(
        StepKernel(name, time, 1, at, floor_us=time, line=line(20 + at))
        for at, (name, time) in enumerate((("mul", 30.0), ("exp", 20.0), ("nvjet", 100.0)))
    )
    capture = replace(
        decode_capture(0.0), ops=ops, kernels=kernels, launches=(), step_us=150.0, idle_us=0.0
    )
    group = named(places(capture), PlaceKind.GROUP)
    # x is read (once: it is the same), y written and read, z written; one pass reads x, writes z
    assert group.time_us == 50.0
    assert group.saves_at_most_us == pytest.approx(50 * (1 - 2 / 5))
    assert group.modules == ("norm",)
    assert not any(one.kind is PlaceKind.OTHER for one in places(capture))


def test_no_graph_is_proposed_where_the_program_has_one():
    capture = replace(decode_capture(), in_graph=True)
    assert not any(one.kind is PlaceKind.IDLE for one in places(capture))


def test_without_kernel_times_shares_are_of_bytes_and_said_to_be():
    capture = replace(decode_capture(), kernels=(), idle_us=None, step_us=None)
    found = places(capture)
    assert all("of the bytes" in one.selected.why for one in found)
    assert all(one.time_us is None for one in found)
    group = named(found, PlaceKind.GROUP)
    assert group.modules == ("norm",)


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("aten::mm", [(4, 8), (8, 16)], Workload(Op.LINEAR, 1, 4, 8, 16)),
        ("aten::addmm", [(16,), (4, 8), (8, 16)], Workload(Op.LINEAR, 1, 4, 8, 16)),
        ("aten::linear", [(2, 3, 8), (16, 8)], Workload(Op.LINEAR, 1, 6, 8, 16)),
        ("aten::matmul", [(2, 3, 8), (8, 16)], Workload(Op.LINEAR, 1, 6, 8, 16)),
        ("aten::bmm", [(5, 4, 8), (5, 8, 16)], Workload(Op.BMM, 5, 4, 8, 16)),
        ("aten::bmm", [(5, 4, 8), (5, 9, 16)], None),
        ("aten::mm", [(4, 8), (9, 16)], None),
        ("aten::mul", [(4, 8), (4, 8)], None),
        ("aten::mm", [(4, 8)], None),
    ],
)
def test_products_with_a_constant_weight(name, inputs, expected):
    *others, last = inputs
    tensors = [tensor(*shape, storage=n) for n, shape in enumerate(others)]
    weight = tensor(*last, storage=7, constant=len(inputs) > 1)
    assert step_product(op(0, name, [*tensors, weight], [])) == expected
    moving = replace(weight, constant=False)
    assert step_product(op(0, name, [*tensors, moving], [])) is None
    if len(inputs) > 1:
        assert step_product(op(0, name, [*tensors, moving], []), assumed=True) == expected


def test_what_a_compiled_region_hides_is_still_worked_on():
    first = decode_capture(0.0)
    region = StepRegion(0, RegionKind.COMPILED, "forward", line(8))
    inside = tuple(replace(one, op=None, launch=None, region=0) for one in first.kernels[3:5])
    now = replace(first, ops=(), launches=(), regions=(region,), kernels=inside, step_us=115.0)
    found = select_again(first, now, (), 0.005, 1.0)
    product = named(found, PlaceKind.PRODUCT)
    assert product.selected.share == pytest.approx(60 / 115)
    assert named(found, PlaceKind.ATTENTION).time_us == 50.0
    assert not any(one.kind is PlaceKind.TRITON for one in found)
    same = select_again(first, first, groups_of(first), 0.005, 1.0)
    assert same == places(first, groups_of(first))


def test_kernels_that_nobody_launched_leave_products_to_be_replaced():
    """A region compiled with templates of torch's own: the products in it name no operator."""
    before, compiled = decode_capture(0.0), decode_capture(0.0)
    kernels = tuple(
        replace(one, name=f"triton_tem_fused_mm_{at}", op=None, line=None) if one.op == 3 else one
        for at, one in enumerate(compiled.kernels)
    )
    now = replace(compiled, kernels=kernels)
    found = select_again(before, now, groups_of(now), 0.005, 1.0)
    (product,) = [one for one in found if one.kind is PlaceKind.PRODUCT]
    assert worked_on(product) and product.time_us == pytest.approx(60.0)
    alone = select_places(now, groups_of(now), 0.005, 1.0)
    assert PlaceKind.PRODUCT not in {one.kind for one in alone}
