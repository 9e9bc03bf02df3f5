"""Dispatch at run time: what a table says is what computes, and all else is torch, bit for bit."""

from __future__ import annotations

import copy
import gc
import pickle
from dataclasses import replace
from importlib.util import find_spec

import pytest
from optimizer.study_samples import ENVIRONMENT, entry

from kernel_compass import dispatch
from kernel_compass.errors import StudyError, UsageError
from kernel_compass.optimizer.dispatch_file import merge
from kernel_compass.records.dispatch import DispatchTable, GpuModel, TokenRange
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from api.dispatch_stand_ins import H200_TARGET, Doubled

from kernel_compass.api.dispatch_sources import source_hashes
from kernel_compass.kernels.providers.registry import implementation

STAND_IN = Candidate("stand_in", {"BLOCK": 64}, "w8a16_int8")
LINEAR = (1, 96, 80)
BMM = (4, 64, 48)


def weight_of(op=Op.BMM, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(1)
    shape = BMM if op is Op.BMM else (LINEAR[2], LINEAR[1])
    return torch.randn(shape, generator=generator).to(dtype)


def activations(tokens, op=Op.BMM, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(tokens)
    shape = (BMM[0], tokens, BMM[1]) if op is Op.BMM else (tokens, LINEAR[1])
    return torch.randn(shape, generator=generator).to(dtype)


def entries(tokens=(1, 16), op=Op.BMM, candidate=STAND_IN, **more):
    return entry(
        tokens=tokens, op=op, sizes=BMM if op is Op.BMM else LINEAR, candidate=candidate, **more
    )


def table_of(*found, stand_ins=(), target=H200_TARGET):
    known = {one.name: one for one in stand_ins}
    table = DispatchTable().merged(found, {one.study: ENVIRONMENT for one in found})
    return dispatch.Table(
        table, lambda name: known[name] if name in known else implementation(name), lambda _: target
    )


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


@pytest.fixture
def stand_in():
    return Doubled()


@pytest.fixture
def used(stand_in):
    """A table in use over a batched weight."""
    table = table_of(entries(), stand_ins=[stand_in])
    weight = weight_of()
    return table, table.prepare(weight), weight


def test_tokens_pick_the_entry_and_others_are_torchs_own(used, stand_in):
    table, handle, weight = used
    for tokens in (1, 2, 15, 16, 17, 64):
        a = activations(tokens)
        stand_in.launches.clear()
        out = table.bmm(a, handle)
        if tokens in (1, 16):
            assert len(stand_in.launches) == 1 and not same(out, torch.bmm(a, weight))
            assert torch.allclose(out.float(), torch.bmm(a, weight).float(), atol=0.5, rtol=0.1)
        else:
            assert not stand_in.launches and same(out, torch.bmm(a, weight))
        found = table.explain(handle, tokens)
        assert found == dispatch.explain(handle, a)
        assert found.implementation == ("stand_in" if tokens in (1, 16) else "torch")
        assert (f"no entry is for {tokens} tokens" in found.reason) == (tokens not in (1, 16))


def test_what_a_handle_remembers_of_token_counts_is_bounded(used, monkeypatch):
    monkeypatch.setattr("kernel_compass.api.dispatch.MOST_CHOSEN", 8)
    _, handle, _ = used
    for _ in range(2):
        said = [handle.explain(tokens).implementation for tokens in range(1, 40)]
        assert [i for i, one in enumerate(said, 1) if one == "stand_in"] == [1, 16]
        assert len(handle._chosen) <= 8


def test_ranges_and_the_better_of_two(stand_in):
    other = Doubled("other")
    table = table_of(
        entries((TokenRange(1, 64),), low=1.1),
        entries((16,), trial=2, low=1.4, candidate=replace(STAND_IN, implementation="other")),
        stand_ins=[stand_in, other],
    )
    handle = table.prepare(weight_of())
    found = [table.explain(handle, t).implementation for t in (1, 16, 64, 65)]
    assert found == ["stand_in", "other", "stand_in", "torch"]


@pytest.mark.parametrize("leading", [(), (7,), (2, 8), (1, 4, 4)])
def test_linear_takes_any_leading_dimensions(stand_in, leading):
    table = table_of(entries(op=Op.LINEAR), stand_ins=[stand_in])
    weight = weight_of(Op.LINEAR)
    handle = table.prepare(weight)
    x = torch.randn(*leading, LINEAR[1]).to(torch.bfloat16)
    out = table.linear(x, handle)
    assert out.shape == (*leading, LINEAR[2])
    tokens = x.numel() // LINEAR[1]
    assert bool(stand_in.launches) == (tokens in (1, 16))
    if not stand_in.launches:
        assert same(out, torch.nn.functional.linear(x, weight))


MACHINES = {
    "another GPU": replace(H200_TARGET, name="NVIDIA H100"),
    "another capability": replace(H200_TARGET, capability=(9, 1)),
    "a slice of it": replace(H200_TARGET, multiprocessors=66),
    "no GPU": type(H200_TARGET)("cpu"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_another_machine_falls_back_and_says_so(stand_in, name):
    table = table_of(entries(), stand_ins=[stand_in], target=MACHINES[name])
    weight, a = weight_of(), activations(1)
    handle = table.prepare(weight)
    assert same(table.bmm(a, handle), torch.bmm(a, weight)) and not stand_in.launches
    reason = table.explain(handle, 1).reason
    assert "measured on NVIDIA H200 (9.0, 132 SMs), and this is" in reason
    assert handle.added_bytes == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"candidate": replace(STAND_IN, implementation="nobody")}, "no implementation"),
        ({"candidate": replace(STAND_IN, config={"OTHER": 1})}, "no configuration"),
        ({"candidate": replace(STAND_IN, format=None)}, "no number format"),
        ({"candidate": replace(STAND_IN, format="fp16")}, "takes float16"),
        ({"files": {"kernel_compass/kernels/decode.py": "00"}}, "decode.py is not the file"),
        ({"files": {"../../etc/passwd": "00"}}, "is not the file"),
        ({"sizes": (4, 64, 49)}, "no entry for bmm 4xMx64x48"),
    ],
)
def test_an_entry_that_cannot_be_used_is_passed_over_with_its_reason(stand_in, change, said):
    fields = {"tokens": (1,), "sizes": BMM, "candidate": STAND_IN, **change}
    table = table_of(entry(**fields), stand_ins=[stand_in])
    weight, a = weight_of(), activations(1)
    handle = table.prepare(weight)
    assert same(table.bmm(a, handle), torch.bmm(a, weight))
    assert said in table.explain(handle, 1).reason
    with pytest.raises(UsageError, match="not to be kept"):
        table.prepare(weight, keep_original=False)


@pytest.mark.parametrize(
    "broken",
    [Doubled(refuses="K is too odd"), Doubled(fails=RuntimeError("its library is broken"))],
)
def test_what_is_outdone_serves_where_the_better_one_cannot(broken):
    other = Doubled("other")
    table = table_of(
        entries(low=1.5),
        entries(low=1.1, trial=2, candidate=replace(STAND_IN, implementation="other")),
        stand_ins=[broken, other],
    )
    handle = table.prepare(weight_of())
    found = table.explain(handle, 1)
    assert found.implementation == "other"
    assert broken.refuses or "broken" in found.passed_over[0]


def test_activations_that_do_not_fit_are_torchs_own(used, stand_in):
    table, handle, weight = used
    askew = activations(64).transpose(1, 2).contiguous().transpose(1, 2)[:, :16]
    assert askew.stride(2) != 1
    assert same(table.bmm(askew, handle), torch.bmm(askew, weight))
    assert "strides" in table.explain(handle, askew).reason
    assert same(table.bmm(activations(1)[:, :0], handle), torch.bmm(activations(1)[:, :0], weight))
    assert not stand_in.launches
    for wrong in (activations(1)[:2], activations(1).float(), activations(1)[0]):
        with pytest.raises(RuntimeError) as torchs:
            torch.bmm(wrong, weight)
        with pytest.raises(RuntimeError) as ours:
            table.bmm(wrong, handle)
        assert str(ours.value) == str(torchs.value)


def test_added_memory_is_counted_once_for_configurations_of_one_packing(stand_in):
    two = [entries((1,)), entries((16,), trial=2, candidate=replace(STAND_IN, config={"BLOCK": 1}))]
    handle = table_of(*two, stand_ins=[stand_in]).prepare(weight_of())
    bytes_of_one = weight_of().numel() * 2
    assert handle.added_bytes == bytes_of_one + 2 * 128
    assert handle.original_bytes == bytes_of_one
    for tokens, block in ((1, 64), (16, 1)):
        dispatch.bmm(activations(tokens), handle)
        assert stand_in.launches[-1][1] == {"BLOCK": block}


def test_the_original_need_not_be_kept(used, stand_in):
    table, _, weight = used
    handle = table.prepare(weight, keep_original=False)
    table.bmm(activations(1), handle)
    assert stand_in.launches
    with pytest.raises(UsageError, match=r"no entry is for 2 tokens.*not kept"):
        table.bmm(activations(2), handle)


def test_a_changed_weight_a_gradient_and_the_wrong_door_are_refused(used):
    table, handle, weight = used
    with pytest.raises(UsageError, match="gradient"):
        table.bmm(activations(1).requires_grad_(), handle)
    with torch.no_grad():
        table.bmm(activations(1).requires_grad_(), handle)
    with pytest.raises(UsageError, match="linear was called"):
        table.linear(activations(1), handle)
    weight.mul_(2)
    with pytest.raises(UsageError, match="changed in place"):
        table.bmm(activations(1), handle)


@pytest.mark.parametrize("wrong", [torch.ones(3, 4), torch.ones(4).bfloat16(), [1.0], None,
                                   torch.ones(0, 4).half()])  # fmt: skip
def test_what_is_no_weight_is_refused(used, wrong):
    with pytest.raises(UsageError, match="weight is"):
        used[0].prepare(wrong)


def test_a_handle_is_not_pickled_or_copied(used):
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(UsageError, match=r"prepare\(weight\) again"):
            act(used[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_keeps_one_graph(used, stand_in, backend, dynamic):
    table, handle, weight = used
    torch._dynamo.reset()

    @torch.compile(backend=backend, fullgraph=True, dynamic=dynamic)
    def layer(a):
        return table.bmm(a * 2, handle).relu() + 1

    for tokens in (16, 3, 16):
        a = activations(tokens)
        stand_in.launches.clear()
        out = layer(a)
        assert len(stand_in.launches) == (tokens == 16)
        assert same(out, dispatch.bmm(a * 2, handle).relu() + 1)
        if tokens == 3:
            assert same(out, torch.bmm(a * 2, weight).relu() + 1)


def test_a_compiled_linear_layer(stand_in):
    torch._dynamo.reset()
    table = table_of(entries(op=Op.LINEAR), stand_ins=[stand_in])
    handle = table.prepare(weight_of(Op.LINEAR))
    compiled = torch.compile(
        lambda x: dispatch.linear(x, handle), backend="aot_eager", fullgraph=True
    )
    x = torch.randn(2, 8, LINEAR[1]).to(torch.bfloat16)
    assert same(compiled(x), dispatch.linear(x, handle)) and len(stand_in.launches) == 2


def test_the_operators_are_as_torch_wants_them(used):
    _, handle, _ = used
    operator = torch.ops.kernel_compass.dispatch_bmm.default
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(operator, (activations(16), handle.number), test_utils=tests)
    torch.library.opcheck(operator, (activations(3), handle.number), test_utils=tests)


def test_a_handle_that_is_gone_is_named(used):
    table, _, weight = used
    number = table.prepare(weight).number
    gc.collect()
    with pytest.raises(UsageError, match="is gone"):
        torch.ops.kernel_compass.dispatch_bmm(activations(1), number)


def test_a_real_implementation_from_a_file(tmp_path):
    """`cublas_bf16` is oneDNN here; its files are those that are installed."""
    found = implementation("cublas_bf16")
    candidate = Candidate("cublas_bf16", {"layout": "nk"}, "bf16")
    files = source_hashes(found)
    assert "kernel_compass/kernels/providers/torch_cublas.py" in files
    here = entries(candidate=candidate, files=files)
    path = tmp_path / "compass.json"
    merge(path, [here], {"study-a": replace(ENVIRONMENT, torch="0.1")})
    table = dispatch.load(path)
    table = dispatch.Table(table.table, target=lambda _: H200_TARGET)
    weight = weight_of()
    handle = table.prepare(weight)
    explained = table.explain(handle, 16)
    assert explained.implementation == "cublas_bf16" and handle.added_bytes == weight.numel() * 2
    assert "measured with torch 0.1" in explained.notes[0]
    a = activations(16)
    assert torch.allclose(table.bmm(a, handle), torch.bmm(a, weight), atol=0.25)
    with pytest.raises(StudyError, match="no dispatch table"):
        dispatch.load(tmp_path / "other.json")


def test_a_table_is_loaded_and_used_where_there_is_no_gpu(tmp_path):
    path = tmp_path / "compass.json"
    merge(path, [entries()], {"study-a": ENVIRONMENT})
    table, weight, a = dispatch.load(str(path)), weight_of(), activations(1)
    handle = table.prepare(weight)
    assert same(table.bmm(a, handle), torch.bmm(a, weight))
    assert "this is a CPU" in table.explain(handle, 1).reason
    assert GpuModel("x", "9.0", 1).text in "x (9.0, 1 SMs)"
