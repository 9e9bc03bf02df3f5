"""The decoder block of the examples, tiny and on the CPU, with actions put on it from outside."""

from __future__ import annotations

import importlib.util
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from api.applied_stand_ins import action, product, put_on
from api.dispatch_stand_ins import Doubled
from api.test_applied_graph import Replays

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def block():
    spec = importlib.util.spec_from_file_location(
        "decoder_block", ROOT / "examples/decoder_block.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["decoder_block"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    phase = module.Phase(2, 1, 16)
    made = module.DecoderBlock(module.TINY, phase, "cpu", torch.bfloat16).eval()
    yield made, module.make_input(made)
    del sys.modules["decoder_block"]


REGION = {"function": "decoder_block.py:DecoderBlock._norm", "settings": {"backend": "eager"}}


@pytest.mark.parametrize("graph", [False, True])
def test_all_at_once_and_not_a_bit_afterwards(block, graph):
    model, x = block
    caches = [model.key_cache, model.value_cache]
    untouched = model(x)
    kept = [one.clone() for one in caches]
    stand_in, graphs = Doubled(), Replays()
    graphs.kept = caches
    actions = [
        product(tokens=2, reduction=64, columns=64),
        product(tokens=2, reduction=64, columns=128),
        product(tokens=2, reduction=128, columns=64),
        action("compile_region", **REGION),
        action("sdpa_backend", settings={"backend": "math"}),
        *([action("step_graph")] if graph else []),
    ]
    with torch.no_grad(), put_on(actions, model, stand_in, graphs=graphs) as on:
        for _ in range(3):
            found = model(x)
        assert all(one.on for one in on.applications), on.explain()
        error = (found.float() - untouched.float()).norm() / untouched.float().norm()
        assert 0 < error < 0.03 and on.products >= 5 * (1 if graph else 3)
        assert graphs.replayed == (2 if graph else 0)
        assert not any(one.notes for one in on.applications), on.explain()
    assert torch.equal(model(x), untouched)
    assert all(torch.equal(a, b) for a, b in zip(caches, kept, strict=True))
