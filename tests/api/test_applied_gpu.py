"""Actions on a real GPU: real kernels, `torch.compile`, CUDA graphs, Triton's autotuner."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from api.applied_stand_ins import action

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
ROOT = Path(__file__).parents[2]
SIZES = (1, 16, 512, 1024)


@pytest.fixture(scope="module")
def torch():
    import torch

    return torch


def product(tokens=16, reduction=512, columns=1024):
    from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
    from kernel_compass.records.trial import Candidate
    from kernel_compass.records.workload import Op, Workload

    work = Workload(Op.LINEAR, 1, tokens, reduction, columns)
    target = StepTarget(work.shape_text, workload=work)
    candidate = Candidate("own_decode", {}, "w8a16_fp8")
    return StepAction(StepActionKind.PRODUCT, target, candidate)


def applied(*actions, roots=None, **options):
    from kernel_compass.api.applying import applied_actions

    return applied_actions(actions, roots, **options)


def operands(torch):
    w = torch.nn.Parameter(torch.randn(1024, 512, device="cuda").bfloat16(), requires_grad=False)
    return w, torch.randn(16, 512, device="cuda").bfloat16()


def near(found, exact):
    return (found.float() - exact.float()).norm() / exact.float().norm() < 0.05


@pytest.mark.parametrize("how", ["eager", "compiled", "graph"])
def test_products_by_a_real_kernel(torch, how):
    w, x = operands(torch)
    linear = torch.nn.functional.linear
    step = torch.compile(lambda x: linear(x, w).relu()) if how == "compiled" else (
        lambda x: linear(x, w).relu())  # fmt: skip
    untouched = step(x)
    with applied(product()) as on:
        found = step(x)
        assert on.products == 1 and on.added_bytes > 0
        assert near(found, untouched) and not torch.equal(found, untouched)
        if how == "graph":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = step(x)
            x.copy_(torch.randn_like(x))
            graph.replay()
            assert near(out, linear(x.clone(), w.clone()).relu())
    assert torch.equal(step(x), step(x))
    if how == "graph":  # what the program captured goes on reading the packed weight
        graph.replay()
        torch.cuda.synchronize()
        assert near(out, step(x))


def test_a_weight_first_seen_while_capturing_is_torchs_own(torch):
    w, x = operands(torch)
    untouched = torch.nn.functional.linear(x, w)
    with applied(product()) as on:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.nn.functional.linear(x, w)
        graph.replay()
        assert torch.equal(out, untouched) and on.added_bytes == 0


def test_originals_are_freed_and_come_back(torch):
    w, x = operands(torch)
    copy = w.cpu().clone()
    with applied(product(), free_originals=True) as on:
        before = torch.cuda.memory_allocated()
        torch.nn.functional.linear(x, w)
        torch.cuda.synchronize()
        assert on.freed_bytes == copy.numel() * 2
        assert torch.cuda.memory_allocated() < before + on.added_bytes
    assert torch.equal(w.cpu(), copy)


def block(torch, phase):
    spec = importlib.util.spec_from_file_location(
        "decoder_block", ROOT / "examples/decoder_block.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["decoder_block"] = module
    spec.loader.exec_module(module)
    made = module.make_block(module.PHASES[phase], "cuda")
    return made, module.make_input(made)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_the_decoder_block_in_a_graph_compiled_and_both(torch, phase):
    model, x = block(torch, phase)
    untouched = model(x)
    region = action("compile_region", module="", settings={"mode": "default"})
    for actions in ([action("step_graph")], [region], [region, action("step_graph")]):
        with applied(*actions, roots=model) as on:
            for _ in range(4):
                found = model(x)
            assert near(found, untouched), on.explain()
            assert all(one.on and one.uses for one in on.applications), on.explain()
            y = torch.randn_like(x)
            assert near(model(y), model.forward(y))
    assert torch.equal(model(x), untouched)


@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn", "math"])
def test_attention_backends(torch, backend):
    q = torch.randn(2, 8, 128, 64, device="cuda").bfloat16()
    attend = torch.nn.functional.scaled_dot_product_attention
    untouched = attend(q, q, q)
    with applied(action("sdpa_backend", settings={"backend": backend})):
        assert near(attend(q, q, q), untouched)
    assert torch.equal(attend(q, q, q), untouched)


def test_tf32(torch):
    a = torch.randn(256, 256, device="cuda")
    untouched = a @ a
    with applied(action("matmul_precision", settings={"precision": "high"})):
        assert not torch.equal(a @ a, untouched)
    assert torch.equal(a @ a, untouched)
