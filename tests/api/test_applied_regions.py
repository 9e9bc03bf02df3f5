"""Compiled regions, attention backends and torch's switches, put on and taken off."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import torch.nn.functional as F
from api import applied_program
from api.applied_stand_ins import action, put_on

from kernel_compass.api.actions.patching import Layer, layers_left

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FILE = "api/applied_program.py"
EAGER = {"backend": "eager"}
X, GAIN = torch.randn(3, 8, generator=torch.Generator().manual_seed(1)), torch.ones(8)


def bound():
    """What the program's names stand for; tracing leaves names of torch's own."""
    return {n: id(v) for n, v in vars(applied_program).items() if not n.startswith(("__", "sub_"))}


@pytest.fixture(autouse=True)
def _nothing_left():
    torch._dynamo.reset()
    before = bound()
    of_classes = {n: dict(vars(getattr(applied_program, n))) for n in ("Gate", "Model")}
    yield
    assert bound() == before
    assert {n: dict(vars(getattr(applied_program, n))) for n in of_classes} == of_classes
    assert torch.overrides._get_current_function_mode_stack() == [] and layers_left() == 0


def compile_region(**target):
    settings = target.pop("settings", EAGER)
    return action("compile_region", settings=settings, **target)


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "target",
    [
        {"function": f"{FILE}:plain"},
        {"function": "applied_program.py:plain"},
        {"function": f"{FILE}:Gate.forward"},
        {"module_class": f"{FILE}:Gate"},
        {"module": "layers.1"},
        {"module": ""},
        {"module": "layers.0", "module_class": f"{FILE}:Gate"},
    ],
)
def test_a_region_is_compiled_where_its_target_is(target):
    model = applied_program.Model().requires_grad_(False)
    untouched = model(X)
    torch._dynamo.utils.counters.clear()
    with put_on([compile_region(**target)], model) as on:
        assert on.applications[0].on
        found = model(X)
        assert graphs() >= 1 and on.applications[0].uses >= 1
        assert torch.allclose(found, untouched, atol=1e-5)
    compiles = graphs()
    assert torch.equal(model(X), untouched) and graphs() == compiles
    assert all("forward" not in vars(one) for one in model.modules())


@pytest.mark.parametrize("compiled", [False, True])
def test_regions_in_regions_and_in_the_programs_own(compiled):
    model = applied_program.Model().requires_grad_(False)
    untouched = model(X)
    call = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    within = [compile_region(function=f"{FILE}:plain"), compile_region(module_class=f"{FILE}:Gate")]
    with put_on([*within, compile_region(module="")], model) as on:
        for _ in range(2):
            assert torch.allclose(call(X), untouched)
        assert [one.objection for one in on.applications] == [None] * 3
    assert torch.allclose(call(X), untouched)


def test_it_is_really_inductor_and_really_off_afterwards():
    untouched = applied_program.plain(X, GAIN)
    with put_on([compile_region(function=f"{FILE}:plain", settings={"mode": "default"})]) as on:
        found = applied_program.plain(X, GAIN)
        assert on.applications[0].uses == 1 and torch.allclose(found, untouched, atol=1e-5)
    assert torch.equal(applied_program.plain(X, GAIN), untouched)


def test_a_function_bound_elsewhere_is_found(monkeypatch):
    other = importlib.import_module("api.applied_stand_ins")
    monkeypatch.setattr(other, "plain", applied_program.plain, raising=False)
    with put_on([compile_region(function=f"{FILE}:plain")]) as on:
        other.plain(X, GAIN)
        assert on.applications[0].uses == 1
    assert other.plain is applied_program.plain


def test_static_methods_stay_static():
    with put_on([compile_region(function=f"{FILE}:Gate.doubled")]) as on:
        assert torch.allclose(applied_program.Gate.doubled(X), torch.tanh(X) * 2)
        assert torch.allclose(applied_program.Gate(8).doubled(X), torch.tanh(X) * 2)
        assert on.applications[0].uses == 2


def test_a_graph_break_takes_it_off_and_names_the_line():
    untouched = applied_program.breaks(X)
    with put_on([compile_region(function=f"{FILE}:breaks")]) as on:
        assert torch.equal(applied_program.breaks(X), untouched)
        (row,) = on.applications
        assert not row.on and "applied_program.py:2" in row.objection
        assert torch.equal(applied_program.breaks(-X.abs()), -X.abs() - 1)


def test_an_exception_of_the_programs_own_is_its_own():
    with put_on([compile_region(function=f"{FILE}:plain")]):
        with pytest.raises(RuntimeError, match="must match") as error:
            applied_program.plain(X, torch.ones(7))
        assert type(error.value) is RuntimeError


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"function": f"{FILE}:nothing"}, "there is no"),
        ({"function": "nothing"}, "names no function of a file"),
        ({"module": "layers.7"}, "no module 'layers.7'"),
        ({}, "which module the step is"),
        ({"settings": {"mode": "fastest"}, "module": ""}, "no mode of torch.compile"),
    ],
)
def test_what_cannot_be_put_on_says_why(target, said):
    roots = {"a": applied_program.Gate(8), "b": applied_program.Gate(8)}
    with put_on([compile_region(**target)], roots) as on:
        assert said in on.applications[0].objection and not on.applications[0].on


def test_the_programs_own_compiled_code_is_in_force_again():
    model = applied_program.Model().requires_grad_(False)
    compiled = torch.compile(model, backend="eager")
    untouched = compiled(X)
    with put_on([compile_region(function=f"{FILE}:plain")], model):
        assert torch.allclose(compiled(X), untouched)
    compiles = graphs()
    assert torch.equal(compiled(X), untouched) and graphs() == compiles


def test_layers_go_in_any_order():
    class Owner:
        name = "first"

    owner = Owner()
    lower = Layer(owner, "name", lambda below, layer: below + " lower")
    upper = Layer(owner, "name", lambda below, layer: below + " upper")
    assert owner.name == "first lower upper"
    lower.remove()
    assert owner.name == "first lower upper"  # as soon as what lies on top is gone
    upper.remove()
    assert owner.name == "first" and "name" not in vars(owner) and layers_left() == 0
    mine = Layer(owner, "name", lambda below, layer: "ours")
    owner.name = "the program's"
    mine.remove()
    assert owner.name == "the program's"


def attention():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, 2, 16, 8, generator=generator) for _ in range(3)]


def backend(name, shapes=()):
    return action("sdpa_backend", settings={"backend": name}, shapes=shapes)


@pytest.mark.parametrize("compiled", [False, True])
def test_attention_by_another_backend(compiled):
    q, k, v = attention()
    call = F.scaled_dot_product_attention
    if compiled:
        model = torch.compile(applied_program.Attends(), backend="aot_eager", fullgraph=True)
        call = model
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        math = F.scaled_dot_product_attention(q, k, v)
    untouched = call(q, k, v)
    assert not torch.equal(untouched, math)
    with put_on([backend("math")]) as on:
        assert torch.equal(call(q, k, v), math) and on.applications[0].uses
        assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.equal(call(q, k, v), untouched)
    shapes = tuple(tuple(one.shape) for one in (q, k, v))
    with put_on([backend("MATH", shapes)]):
        assert torch.equal(call(q, k, v), math)
        half = [one[:1] for one in (q, k, v)]
        assert torch.equal(call(*half), untouched[:1])


@pytest.mark.parametrize("name", ["cudnn", "efficient"])
def test_a_backend_that_cannot_is_torchs_own_choice(name):
    q, k, v = attention()
    untouched = F.scaled_dot_product_attention(q, k, v)
    with put_on([backend(name)]):
        assert torch.equal(F.scaled_dot_product_attention(q, k, v), untouched)
    with put_on([backend("fastest")]) as on:
        assert "no attention backend" in on.applications[0].objection


def test_precision_of_products_is_set_and_put_back():
    before = torch.get_float32_matmul_precision()
    with put_on([action("matmul_precision", settings={"precision": "medium"})]):
        assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_float32_matmul_precision() == before
    with put_on([action("matmul_precision", settings={"precision": "low"})]) as on:
        assert "no precision" in on.applications[0].objection
    with pytest.raises(ValueError, match="x"), put_on([action("matmul_precision")]):
        raise ValueError("x")
    assert torch.get_float32_matmul_precision() == before
