"""Linear layers with the same input computed as one, on a real GPU by real kernels."""

from __future__ import annotations

import pytest
from api.applied_stand_ins import action
from api.test_applied_gpu import applied, block, near

from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
QKV, GATE_UP = (4096, 1024, 1024), (14336, 14336)
WAYS = {
    "torch's own": Candidate("cublas_bf16", {}, "bf16"),
    "8 bits": Candidate("own_decode", {}, "w8a16_int8"),
}
HOW = {
    "eager": [],
    "graph": [action("step_graph")],
    "compiled": [action("compile_region", module="", settings={"mode": "default"})],
    "both": [
        action("compile_region", module="", settings={"mode": "default"}),
        action("step_graph"),
    ],
}


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


def shared(parts, candidate, tokens=16):
    work = Workload(Op.LINEAR, 1, tokens, 4096, sum(parts))
    name = f"{work.shape_text} of {'+'.join(map(str, parts))}"
    target = StepTarget(name, workload=work, parts=parts)
    return StepAction(StepActionKind.PRODUCT, target, candidate)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOW)
def test_the_decoder_block_with_products_of_one_input_as_one(torch, how, way):
    torch._dynamo.reset()
    with torch.no_grad():
        model, x = block(torch, "decode")
        untouched = model(x)
        joined = [shared(QKV, WAYS[way]), shared(GATE_UP, WAYS[way])]
        with applied(*HOW[how], *joined, roots=model) as on:
            for _ in range(4):
                found = model(x)
            assert near(found, untouched), on.explain()
            assert all(one.on for one in on.applications), on.explain()
            assert on.products >= len(joined), on.explain()
            y = torch.randn_like(x)
            changed = model(y)
        assert near(changed, model(y))
        assert torch.equal(model(x), untouched)
