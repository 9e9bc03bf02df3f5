"""Dispatch on a real GPU: real kernels, torch.compile and CUDA graphs."""

from __future__ import annotations

import pytest
from optimizer.study_samples import ENVIRONMENT, entry

from kernel_compass import dispatch
from kernel_compass.records.dispatch import DispatchTable, GpuModel
from kernel_compass.records.trial import Candidate

pytestmark = pytest.mark.gpu

SIZES = (16, 128, 512)
FORMAT = "w8a16_fp8"


@pytest.fixture(scope="module")
def used():
    import torch

    from kernel_compass.api.dispatch_sources import source_hashes
    from kernel_compass.kernels.providers.registry import implementation

    found = torch.cuda.get_device_properties(0)
    gpu = GpuModel(found.name, f"{found.major}.{found.minor}", found.multi_processor_count)
    files = source_hashes(implementation("own_decode"))
    candidate = Candidate("own_decode", {}, FORMAT)
    entries = [
        entry(trial=n, tokens=(tokens,), sizes=SIZES, gpu=gpu, candidate=candidate, files=files)
        for n, tokens in enumerate((1, 16, 64), 1)
    ]
    table = dispatch.Table(DispatchTable().merged(entries, {"study-a": ENVIRONMENT}))
    weight = torch.randn(SIZES, device="cuda").to(torch.bfloat16)
    return torch, table, table.prepare(weight), weight


def activations(torch, tokens):
    return torch.randn(SIZES[0], tokens, SIZES[1], device="cuda").to(torch.bfloat16)


def test_entries_compute_and_share_one_packed_weight(used):
    torch, table, handle, weight = used
    codes = weight.numel() + SIZES[0] * SIZES[2] * 2
    assert codes <= handle.added_bytes <= 1.1 * codes
    for tokens in (1, 16, 64):
        a = activations(torch, tokens)
        assert table.explain(handle, tokens).implementation == "own_decode"
        out, exact = table.bmm(a, handle).float(), torch.bmm(a.float(), weight.float())
        assert (out - exact).norm() / exact.norm() < 0.05
    a = activations(torch, 17)
    assert torch.equal(table.bmm(a, handle), torch.bmm(a, weight))


@pytest.mark.parametrize("tokens", [16, 17])
def test_a_cuda_graph_replays_it(used, tokens):
    torch, table, handle, _ = used
    a = activations(torch, tokens)
    table.bmm(a, handle)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = table.bmm(a, handle)
    a.copy_(activations(torch, tokens))
    graph.replay()
    assert torch.equal(out, table.bmm(a, handle))


@pytest.mark.filterwarnings("default")  # compilers warn of themselves, and of other versions
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_torch_compile_with_its_own_backend(used, mode):
    torch, table, handle, _ = used
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    layer = torch.compile(lambda a: table.bmm(a, handle) * 2, fullgraph=True, mode=mode)
    for _ in range(3):
        a = activations(torch, 16)
        assert torch.equal(layer(a).clone(), table.bmm(a, handle) * 2)
    assert counters["inductor"]["cudagraph_skips"] == 0
