"""Each kind of change: when it is proposed, what for, and what it is said to bring."""

from __future__ import annotations

from dataclasses import replace

import pytest
from optimizer.step_samples import KIND, decode_capture, groups_of, op, tensor

from kernel_compass.optimizer.step_doors import StepView
from kernel_compass.optimizer.step_proposers import step_proposers
from kernel_compass.optimizer.step_proposers.products import decided
from kernel_compass.optimizer.step_proposers.triton_configs import neighbours
from kernel_compass.optimizer.step_selecting import select_places, worked_on
from kernel_compass.records.comparison import Interval
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_action import StepAction, StepTarget
from kernel_compass.records.step_capture import StepKernel
from kernel_compass.records.step_loop import PlaceKind, ProductChoice, ProductFound
from kernel_compass.records.trial import Candidate


def view(capture, accepted=(), budget=1.0, groups=groups_of, **more):
    found = select_places(capture, groups(capture), 0.005, budget)
    return StepView(capture, tuple(filter(worked_on, found)), accepted, budget, 1.3, **more)


def proposals(found, kind):
    offers = [one for source in step_proposers(40) for one in source.propose(found)]
    return [one for one in offers if one.proposal.action.kind is kind]


def test_a_graph_is_proposed_once_where_the_gpu_waits():
    (offer,) = proposals(view(decode_capture()), KIND.STEP_GRAPH)
    assert offer.proposal.saves_us == pytest.approx(490.0)
    assert offer.proposal.preconditions
    assert not proposals(view(decode_capture(), (offer.proposal.action,)), KIND.STEP_GRAPH)
    assert not proposals(view(replace(decode_capture(), in_graph=True)), KIND.STEP_GRAPH)
    assert not proposals(view(decode_capture(0.0)), KIND.STEP_GRAPH)


def test_regions_are_the_modules_around_a_run_from_the_innermost_out():
    found = proposals(view(decode_capture()), KIND.COMPILE_REGION)
    modes = {
        o.proposal.action.target.module: [one.settings["mode"] for one in o.configs] for o in found
    }
    # the whole step holds products, which torch can tune: which mode is better is measured
    assert modes == {"norm": [], "": ["default", "max-autotune-no-cudagraphs"]}
    assert {o.proposal.action.settings["mode"] for o in found} == {"default"}
    inner = next(o for o in found if o.proposal.action.target.module == "norm")
    assert inner.proposal.saves_us == pytest.approx(0.6 * 12.0)
    outer = next(o for o in found if o.proposal.action.target.module == "")
    assert inner.cost_s < outer.cost_s


def test_modules_of_one_class_are_compiled_together():
    capture = decode_capture()
    modules = {"": "model.py:Block", "norm": "model.py:Norm", "norm2": "model.py:Norm"}
    found = proposals(view(replace(capture, modules=modules)), KIND.COMPILE_REGION)
    targets = {o.proposal.action.target for o in found}
    assert StepTarget("modules model.py:Norm (2)", module_class="model.py:Norm") in targets


def test_a_method_around_most_of_a_run_is_a_region_too():
    capture = decode_capture()
    ops = tuple(
        replace(one, line=replace(one.line, function="Block._norm")) if one.index < 3 else one
        for one in capture.ops
    )
    found = proposals(view(replace(capture, ops=ops)), KIND.COMPILE_REGION)
    functions = {o.proposal.action.target.function for o in found}
    assert "model.py:Block._norm" in functions


def test_a_region_that_is_compiled_already_is_not_proposed_again():
    (first, *_) = proposals(view(decode_capture()), KIND.COMPILE_REGION)
    done = first.proposal.action
    again = proposals(view(decode_capture(), (done,)), KIND.COMPILE_REGION)
    assert done.target not in {o.proposal.action.target for o in again}


def test_products_are_proposed_in_bf16_on_a_gpu_with_what_the_model_says():
    found = view(decode_capture(), speedups={"linear 16x4096x14336": 1.6}, basis="calibration x")
    (offer,) = proposals(found, KIND.PRODUCT)
    assert offer.study is not None
    assert offer.proposal.saves_us == pytest.approx(60 * (1 - 1 / 1.6))
    assert "1.60x by calibration x" in offer.proposal.evidence
    (unknown,) = proposals(view(decode_capture()), KIND.PRODUCT)
    assert unknown.proposal.saves_us is None
    done = StepAction(KIND.PRODUCT, StepTarget("x", workload=offer.study))
    assert not proposals(view(decode_capture(), (done,)), KIND.PRODUCT)


def test_a_weight_that_changes_is_no_product_to_replace():
    capture = decode_capture()
    ops = list(capture.ops)
    weight = replace(ops[3].inputs[1], constant=False)
    ops[3] = replace(ops[3], inputs=(ops[3].inputs[0], weight))
    # something else is constant, so that the capture is known to say so
    ops[0] = replace(ops[0], inputs=(tensor(16, 4096, storage=50, constant=True),))
    assert not proposals(view(replace(capture, ops=tuple(ops))), KIND.PRODUCT)


def test_tf32_is_proposed_for_float32_products_within_the_budget():
    capture = decode_capture(0.0)
    a, b = (tensor(512, 512, storage=n, dtype="float32", constant=n == 2) for n in (1, 2))
    product = op(0, "aten::mm", [a, b], [a])
    kernels = (StepKernel("sgemm", 100.0, 1, 0, floor_us=20.0),)
    plain = replace(capture, ops=(product,), kernels=kernels, launches=(), step_us=100.0)
    none = lambda _: ()  # noqa: E731
    (offer,) = proposals(view(plain, groups=none), KIND.MATMUL_PRECISION)
    assert offer.proposal.saves_us == pytest.approx(75.0)
    assert not proposals(view(plain, budget=0.01, groups=none), KIND.MATMUL_PRECISION)
    assert not proposals(view(decode_capture()), KIND.MATMUL_PRECISION)  # bf16
    cpu = replace(plain, kernels=(), environment=Environment(Device()))
    assert not proposals(view(cpu, groups=none), KIND.MATMUL_PRECISION)


def test_a_copy_is_needless_only_where_its_readers_take_strides():
    capture = decode_capture(0.0)
    x, y, w = tensor(64, 64, storage=1), tensor(64, 64, storage=2), tensor(64, 64, storage=3)
    copy = op(0, "aten::clone", [x], [y], "", 11)
    reader = op(1, "aten::mm", [y, w], [x])
    kernels = (
        StepKernel("copy_kernel", 30.0, 1, 0, floor_us=20.0),
        StepKernel("gemm", 30.0, 1, 1, floor_us=20.0),
    )
    base = replace(capture, ops=(copy, reader), kernels=kernels, launches=(), step_us=60.0)
    none = lambda _: ()  # noqa: E731
    (offer,) = proposals(view(base, groups=none), KIND.LAYOUT)
    assert offer.proposal.action.target.function == "model.py:11"
    assert offer.proposal.saves_us == 30.0
    other = op(1, "aten::add", [y, w], [x])
    assert not proposals(view(replace(base, ops=(copy, other)), groups=none), KIND.LAYOUT)
    wider = replace(copy, outputs=(replace(y, dtype="float32"),))
    assert not proposals(view(replace(base, ops=(wider, reader)), groups=none), KIND.LAYOUT)


def test_configurations_near_the_authors_come_first_and_autotunes_choices_are_kept():
    (launch,) = decode_capture().launches
    found = neighbours(launch)
    assert dict(launch.config) not in [dict(one) for one in found]
    differs = [sum(one[k] != launch.config[k] for k in one) for one in found]
    assert differs == sorted(differs) and differs[0] == 1
    assert {one["BLOCK"] for one in found} == {64, 128, 256, 512, 1024}
    tuned = replace(launch, choices=({"BLOCK": 512, "num_warps": 8}, {"BLOCK": 256}))
    assert neighbours(tuned) == ({"BLOCK": 512, "num_warps": 8},)


def test_sizes_that_the_grid_does_not_follow_stay():
    (launch,) = decode_capture().launches
    config = {"BLOCK_M": 64, "BLOCK_N": 128, "num_warps": 4}
    held = replace(launch, config=config, tied=("BLOCK_M",))
    found = neighbours(held)
    assert {one["BLOCK_M"] for one in found} == {64}
    assert {one["BLOCK_N"] for one in found} == {32, 64, 128, 256, 512}
    capture = decode_capture()
    capture = replace(capture, launches=(held,))
    (offer,) = proposals(view(capture), KIND.TRITON_CONFIG)
    assert "BLOCK_M stays, which its grid does not follow" in offer.proposal.preconditions


def test_numbers_that_are_no_sizes_stay_as_they_are():
    (launch,) = decode_capture().launches
    odd = replace(launch, config={"N": 1000, "CAUSAL": True, "BLOCK": 64, "num_warps": 4})
    assert {(one["N"], one["CAUSAL"]) for one in neighbours(odd)} == {(1000, True)}


def attention_capture(*, written=False, turned=False):
    """Three layers of one input and one of another, as aten shows them; kernels of 10 us."""
    capture = decode_capture(0.0)
    x, other = tensor(16, 4096, storage=1), tensor(16, 4096, storage=2)

    def weight(columns, storage):
        found = tensor(4096, columns, storage=storage, constant=True)
        return found if turned else replace(found, strides=(1, 4096))

    ops = [
        op(0, "aten::mm", [x, weight(4096, 10)], [tensor(16, 4096, storage=20)], "attn"),
        op(1, "aten::mul", [tensor(16, 4096, storage=20)] * 2, [tensor(16, 4096, storage=21)]),
        op(2, "aten::mm", [x, weight(1024, 11)], [tensor(16, 1024, storage=22)], "attn"),
        op(3, "aten::mm", [x, weight(1024, 12)], [tensor(16, 1024, storage=23)], "attn"),
        op(4, "aten::mm", [other, weight(4096, 13)], [tensor(16, 4096, storage=24)], "attn"),
    ]
    if written:
        ops[1] = op(1, "aten::mul_", [x, x], [x], writes=True)
    products = (0, 2, 3, 4)
    kernels = tuple(StepKernel(f"gemm{at}", 10.0, 1, at, floor_us=5.0) for at in products)
    return replace(capture, ops=tuple(ops), kernels=kernels, launches=(), step_us=40.0)


def none(_):
    return ()


def joined_offers(found):
    return [o for o in proposals(found, KIND.PRODUCT) if o.proposal.action.target.parts]


def test_layers_of_one_input_are_proposed_as_one():
    found = view(attention_capture(), groups=none, speedups={"linear 16x6144x4096": 1.5})
    (offer,) = joined_offers(found)
    target = offer.proposal.action.target
    assert target.parts == (4096, 1024, 1024) and offer.study == target.workload
    assert offer.study.shape_text == "linear 16x6144x4096"
    # 30 us, of which two products' starts of 3 us, and a third of what is left
    assert offer.proposal.saves_us == pytest.approx(6.0 + 24.0 / 3)
    assert offer.proposal.share == pytest.approx(0.75)
    # once they are one, of two layers of one size the other is left
    done = replace(offer.proposal.action)
    after = view(attention_capture(), (done,), groups=none)
    assert not joined_offers(after)
    (left,) = proposals(after, KIND.PRODUCT)
    assert left.study.shape_text == "linear 16x4096x4096"
    assert left.proposal.share == pytest.approx(0.25)


def test_layers_whose_input_is_written_between_are_not_one():
    (offer,) = joined_offers(view(attention_capture(written=True), groups=none))
    assert offer.proposal.action.target.parts == (1024, 1024)


def test_weights_that_lie_the_other_way_round_are_not_put_together():
    assert not joined_offers(view(attention_capture(turned=True), groups=none))


def test_what_is_tried_of_one_input_ends_with_torchs_own_product():
    (offer,) = joined_offers(view(attention_capture(), groups=none))
    gain = {"cold": Interval(1.5, 1.4, 1.6, 0.95)}
    found = ProductFound("s", Candidate("own_decode", {}, "w8a16_int8"), gain, 1 << 20)
    first, last = decided(offer, found, 40.0)
    assert first.proposal.action.candidate.format == "w8a16_int8" and first.proposal.finer == 1
    assert first.proposal.saves_us == pytest.approx(6.0 + 24.0 / 3)
    assert last.proposal.action.candidate.implementation == "cublas_bf16"
    assert last.proposal.saves_us == pytest.approx(6.0) and last.proposal.finer == 0
    (only,) = decided(offer, ProductFound(None, None, detail="nothing"), 40.0)
    assert only.proposal.action.candidate.implementation == "cublas_bf16"
    own = ProductFound("s", Candidate("own_decode", {}, "bf16"), gain)
    assert [o.proposal.action.candidate.format for o in decided(offer, own, 40.0)] == ["bf16"]


def test_only_formats_that_were_asked_for_are_tried():
    """Whatever a study knows; what has no number format of its own is none of another."""
    (offer,) = joined_offers(view(attention_capture(), groups=none))
    eight = ProductChoice(Candidate("own", {}, "w8a16_fp8"))
    plain = ProductChoice(Candidate("theirs", {}, None))
    found = ProductFound("s", eight.candidate, finer=(plain,))

    def tried(*formats):
        offers = decided(offer, found, 40.0, formats)
        return [one.proposal.action.candidate.implementation for one in offers]

    assert tried() == ["own", "theirs", "cublas_bf16"]
    assert tried("bf16") == ["theirs", "cublas_bf16"]
    assert tried("w8a16_fp8") == ["own", "theirs"]


def test_short_kernels_of_a_compiled_region_are_no_region_to_compile():
    capture = decode_capture(0.0)
    kernels = tuple(replace(one, op=None, line=None) for one in capture.kernels)
    found = view(replace(capture, kernels=kernels))
    assert any(one.kind is PlaceKind.GROUP for one in found.places)
    assert not proposals(found, KIND.COMPILE_REGION)


def test_attention_near_its_floor_is_left_as_it_is():
    kernels = list(decode_capture().kernels)
    near = replace(kernels[4], floor_us=47.0)
    assert near.name == "flash_fwd" and near.time_us == 50.0
    assert proposals(view(decode_capture(0.0)), KIND.SDPA_BACKEND)
    kernels[4] = near
    capture = replace(decode_capture(0.0), kernels=tuple(kernels))
    assert not proposals(view(capture), KIND.SDPA_BACKEND)
