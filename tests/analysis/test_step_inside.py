"""Compiled regions opened: their products are kernels of their own, and no time is lost or made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optimizer.step_samples import decode_capture, groups_of, line, op, tensor

from kernel_compass.analysis.step_inside import opened
from kernel_compass.optimizer.step_selecting import select_places
from kernel_compass.records.step_capture import RegionKind, StepKernel, StepRegion
from kernel_compass.records.step_loop import PlaceKind
from kernel_compass.records.workload import Op, Workload


def product(index, rows, columns, region=0):
    x, y = tensor(16, rows, storage=50 + index), tensor(16, columns, storage=60 + index)
    weight = tensor(rows, columns, storage=70 + index, constant=True)
    return op(index, "aten::mm", [x, weight], [y], "mlp", 90 + index, region=region)


def served(kind=RegionKind.COMPILED):
    """Two products in a region of 400 us, one with a weight three times as large."""
    capture = decode_capture(idle_us=0.0)
    index = len(capture.regions)
    norm = op(0, "aten::mul", [tensor(16, 4096)], [tensor(16, 4096, storage=51)], region=index)
    inside = (norm, product(1, 4096, 12288, index), product(2, 4096, 4096, index))
    gemms = StepKernel("gemm", 380.0, 2.0, region=index)
    fused = StepKernel("fused", 20.0, 1.0, region=index, floor_us=10.0)
    return replace(
        capture,
        regions=(*capture.regions, StepRegion(index, kind, "before", line(89))),
        kernels=(*capture.kernels, gemms, fused),
        step_us=capture.step_us + 400.0,
        inside=inside,
    )


def test_time_is_divided_by_bytes_and_none_is_lost():
    capture = served()
    found = opened(capture)
    before, after = (sum(one.time_us for one in c.kernels) for c in (capture, found))
    assert after == pytest.approx(before)
    wide, narrow = found.kernels[-2:]
    assert wide.time_us == pytest.approx(3 * narrow.time_us, rel=0.01)
    assert wide.time_us + narrow.time_us == pytest.approx(400, rel=0.01)
    assert [found.ops[one.op].inputs[1].shape[1] for one in (wide, narrow)] == [12288, 4096]
    assert found.kernels[: len(capture.kernels) - 2] == capture.kernels[:-2]
    assert found.ops[: len(capture.ops)] == capture.ops
    assert opened(found) == found


def test_products_of_a_compiled_region_are_worked_on():
    capture = served()
    places = select_places(capture, groups_of(capture), 0.005, 5.0)
    works = {one.workload: one for one in places if one.kind is PlaceKind.PRODUCT}
    wide = works[Workload(Op.LINEAR, 1, 16, 4096, 12288)]
    assert wide.time_us == pytest.approx(300, rel=0.02) and wide.dtype == "bfloat16"
    assert [one.line for one in wide.lines] == [91] and wide.modules == ("mlp",)
    total = sum(one.time_us for one in places)
    closed = select_places(replace(capture, inside=()), groups_of(capture), 0.005, 5.0)
    assert total == pytest.approx(sum(one.time_us for one in closed))
    assert Workload(Op.LINEAR, 1, 16, 4096, 12288) not in {one.workload for one in closed}


def test_other_regions_stay_closed():
    capture = served(RegionKind.THREAD)
    assert opened(capture).kernels == capture.kernels


def test_without_kernel_times_operators_alone_are_added():
    capture = replace(served(), kernels=())
    found = opened(capture)
    assert found.kernels == () and len(found.ops) == len(capture.ops) + 2
