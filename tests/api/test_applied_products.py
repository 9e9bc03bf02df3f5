"""Products of a program by another implementation, with nothing of the program edited."""

from __future__ import annotations

import gc
import threading
import warnings
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import torch.nn.functional as F
from api.applied_stand_ins import action, product, put_on
from api.dispatch_stand_ins import Doubled

from kernel_compass.api.actions import constant_weights
from kernel_compass.api.actions.patching import layers_left
from kernel_compass.records.workload import Op


@pytest.fixture
def stand_in():
    return Doubled()


@pytest.fixture(autouse=True)
def _nothing_left():
    stack = torch.overrides._get_current_function_mode_stack()
    yield
    assert torch.overrides._get_current_function_mode_stack() == stack and layers_left() == 0


def weight_of(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).bfloat16()


def activations(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2)).bfloat16()


def parameter(*shape):
    return torch.nn.Parameter(weight_of(*shape), requires_grad=False)


def same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


LINEAR, TURNED = parameter(80, 96), parameter(96, 80)
BATCHED = parameter(4, 64, 48)
X, A, BIAS = activations(4, 96), activations(4, 5, 64), activations(80)
BMM = {"op": Op.BMM, "heads": 4, "tokens": 5, "reduction": 64, "columns": 48}
WAYS = {
    "linear": (lambda: F.linear(X, LINEAR), {}),
    "linear 3d": (lambda: F.linear(X.view(2, 2, 96), LINEAR), {}),
    "linear, bias": (lambda: F.linear(X, LINEAR, BIAS), {}),
    "linear, named bias": (lambda: F.linear(X, LINEAR, bias=BIAS), {}),
    "matmul": (lambda: torch.matmul(X, TURNED), {}),
    "@": (lambda: X @ TURNED, {}),
    "@ 3d": (lambda: X.view(2, 2, 96) @ TURNED, {}),
    "a view at every call": (lambda: X @ LINEAR.t(), {}),
    "T": (lambda: X @ LINEAR.T, {}),
    "mm": (lambda: torch.mm(X, TURNED), {}),
    "Tensor.mm": (lambda: X.mm(TURNED), {}),
    "addmm": (lambda: torch.addmm(BIAS, X, TURNED), {}),
    "bmm": (lambda: torch.bmm(A, BATCHED), BMM),
    "Tensor.bmm": (lambda: A.bmm(BATCHED), BMM),
    "matmul of batches": (lambda: A @ BATCHED, BMM),
    "einsum": (lambda: torch.einsum("hmk,hkn->hmn", A, BATCHED), BMM),
    "einsum, absorbed": (
        lambda: torch.einsum("bshd,hdc->bshc", A.permute(1, 0, 2)[:, None], BATCHED),
        BMM,
    ),
    "einsum of a slice": (
        lambda: torch.einsum("bhd,hdc->bhc", A[:, :, :32].transpose(0, 1), BATCHED[:, :32]),
        {**BMM, "reduction": 32},
    ),
    "einsum, turned": (lambda: torch.einsum("hmc,hdc->hmd", A[:, :, :48], BATCHED),
                       {**BMM, "reduction": 48, "columns": 64}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_a_product(way, stand_in):
    call, sizes = WAYS[way]
    untouched = call()
    with put_on([product(**sizes)], stand_in=stand_in) as on:
        for _ in range(2):
            stand_in.launches.clear()
            found = call()
            assert len(stand_in.launches) == 1
        assert found.shape == untouched.shape and found.dtype == untouched.dtype
        assert not torch.equal(found, untouched)  # int8 weights
        error = (found.float() - untouched.float()).norm() / untouched.float().norm()
        assert error < 0.02
        assert on.products == 2 and on.added_bytes > 0
    assert same(call(), untouched)


def test_what_no_entry_is_for_is_torchs_own(stand_in):
    other = parameter(80, 97)
    calls = [
        lambda: F.linear(X[:3], LINEAR),
        lambda: F.linear(activations(4, 97), other),
        lambda: torch.matmul(X[0], TURNED),
        lambda: torch.einsum("mk,nk->mn", X, LINEAR),
        lambda: LINEAR @ X.t(),
        lambda: torch.addmm(BIAS, X, TURNED, beta=2),
        lambda: F.linear(X.float(), LINEAR.float()),
        lambda: F.linear(activations(96, 4).t(), LINEAR),
        lambda: F.linear(input=X, weight=LINEAR),
    ]
    before = [call() for call in calls]
    with put_on([product()], stand_in=stand_in):
        assert all(same(call(), one) for call, one in zip(calls, before, strict=True))
    assert not stand_in.launches


@pytest.mark.parametrize("wrong", [lambda: F.linear(X, LINEAR.t()), lambda: X @ "a",
                                   lambda: torch.mm(X, 3), lambda: F.linear(X)])  # fmt: skip
def test_mistakes_are_torchs_own(wrong):
    with pytest.raises((RuntimeError, TypeError)) as before:
        wrong()
    with put_on([product()]), pytest.raises(type(before.value)) as error:
        wrong()
    assert str(error.value) == str(before.value)


def test_a_weight_that_is_no_parameter_has_to_be_seen_twice(stand_in):
    plain = weight_of(80, 96)
    with put_on([product()], stand_in=stand_in):
        assert same(F.linear(X, plain), torch.nn.functional.linear(X.clone(), plain.clone()))
        assert not stand_in.launches
        F.linear(X, plain)
        assert len(stand_in.launches) == 1
        for _ in range(3):
            F.linear(X, weight_of(80, 96))  # another one at every call is no constant
        assert len(stand_in.launches) == 1


def test_buffers_and_attributes_of_the_program_are_constant(stand_in):
    module = torch.nn.Module()
    module.register_buffer("w", weight_of(80, 96))
    with put_on([product()], module, stand_in):
        F.linear(X, module.w)
    assert len(stand_in.launches) == 1


def test_a_weight_changed_in_place_is_torchs_and_then_packed_again(stand_in):
    weight = parameter(80, 96)
    with put_on([product()], stand_in=stand_in):
        F.linear(X, weight)
        weight.mul_(2)
        stand_in.launches.clear()
        assert same(F.linear(X, weight), F.linear(X.clone(), weight.clone()))
        assert not stand_in.launches
        found = F.linear(X, weight)
        assert len(stand_in.launches) == 1
        exact = X.float() @ weight.float().t()
        assert (found.float() - exact).norm() / exact.norm() < 0.02


def test_a_weight_that_keeps_changing_is_left_alone_with_one_warning(stand_in):
    weight = parameter(80, 96)
    with put_on([product()], stand_in=stand_in) as on:
        with pytest.warns(RuntimeWarning, match="keeps changing") as said:
            F.linear(X, weight)
            for _ in range(6):
                weight.mul_(1.5)
                F.linear(X, weight)
                F.linear(X, weight)
        assert len(said) == 1 and on.added_bytes == 0
        assert same(F.linear(X, weight), F.linear(X.clone(), weight.clone()))
    assert len(stand_in.launches) == constant_weights.MOST_PACKINGS


def test_a_change_through_data_is_seen(stand_in):
    weight = parameter(80, 96)
    with put_on([product()], stand_in=stand_in):
        F.linear(X, weight)
        stand_in.launches.clear()
        assert weight.data.shape == (80, 96)
        F.linear(X, weight)
        assert len(stand_in.launches) == 1  # looked at, and not changed
        weight.data.mul_(2)
        found = F.linear(X, weight)
        exact = X.float() @ weight.float().t()
        assert (found.float() - exact).norm() / exact.norm() < 0.02
        weight.data = weight_of(80, 96) * 3
        found = F.linear(X, weight)
        exact = X.float() @ weight.float().t()
        assert (found.float() - exact).norm() / exact.norm() < 0.02
        with pytest.warns(RuntimeWarning, match=r"\.data"):
            for _ in range(constant_weights.MOST_LOOKS + 2):
                F.linear(X, weight.data)


def test_a_weight_that_is_freed_gives_its_packed_one_back(stand_in):
    with put_on([product()], stand_in=stand_in) as on:
        weight = parameter(80, 96)
        F.linear(X, weight)
        assert on.added_bytes > 0
        del weight
        gc.collect()
        assert on.added_bytes == 0
        for _ in range(5):  # memory that comes back at the same address is another weight
            weight = torch.nn.Parameter(torch.rand(80, 96).bfloat16(), requires_grad=False)
            found, exact = F.linear(X, weight), X.float() @ weight.float().t()
            assert (found.float() - exact).norm() / exact.norm() < 0.02
            del weight


def test_two_modules_with_one_weight_pack_it_once(stand_in):
    one, two = torch.nn.Linear(96, 80, dtype=torch.bfloat16), torch.nn.Linear(96, 80)
    two.weight = one.weight
    with put_on([product()], torch.nn.ModuleList([one, two]), stand_in) as on, torch.no_grad():
        one(X)
        once = on.added_bytes
        F.linear(X, two.weight)
        assert on.added_bytes == once and len(stand_in.launches) == 2


def test_products_of_one_module_alone(stand_in):
    model = torch.nn.Sequential(*(torch.nn.Linear(96, 80, dtype=torch.bfloat16) for _ in "ab"))
    with put_on([product(module="1")], model, stand_in), torch.no_grad():
        model[0](X)
        assert not stand_in.launches
        model[1](X)
        assert len(stand_in.launches) == 1
    with put_on([product(module="7")], model, stand_in) as on:
        assert "no module '7'" in on.applications[0].objection


def test_training_is_left_alone(stand_in):
    layer = torch.nn.Linear(96, 80, dtype=torch.bfloat16)
    with put_on([product()], stand_in=stand_in):
        layer(X).sum().backward()
        x = X.clone().requires_grad_()
        F.linear(x, LINEAR).sum().backward()
        assert layer.weight.grad is not None and x.grad is not None and not stand_in.launches
        with torch.inference_mode():
            layer(X)
        assert len(stand_in.launches) == 1


def test_weights_made_in_inference_mode_are_left_alone_and_named(stand_in):
    with put_on([product()], stand_in=stand_in) as on, torch.inference_mode():
        made = torch.nn.Parameter(weight_of(80, 96), requires_grad=False)
        for _ in range(3):
            F.linear(X, made)
        assert not stand_in.launches and "inference mode" in "\n".join(on.explain())


class Marked(torch.Tensor):
    """A subclass that sees what is called with it."""

    seen: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_and_transforms_are_left_alone(stand_in):
    marked = X.as_subclass(Marked)
    batched = torch.func.vmap(lambda row: F.linear(row, LINEAR))
    rows = activations(2, 4, 96)
    before = batched(rows)
    with put_on([product()], stand_in=stand_in):
        Marked.seen.clear()
        assert type(F.linear(marked, LINEAR)) is Marked and F.linear in Marked.seen
        assert same(batched(rows), before)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            F.linear(X, LINEAR)
    assert not stand_in.launches


def test_other_threads_are_left_alone(stand_in):
    found = []
    with put_on([product()], stand_in=stand_in):
        thread = threading.Thread(target=lambda: found.append(F.linear(X, LINEAR)))
        thread.start()
        thread.join()
        assert not stand_in.launches
        F.linear(X, LINEAR)
    assert same(found[0], F.linear(X, LINEAR)) and len(stand_in.launches) == 1


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_takes_all_off(kind, stand_in):
    untouched = F.linear(X, LINEAR)
    with pytest.raises(kind), put_on([product()], stand_in=stand_in):
        F.linear(X, LINEAR)
        raise kind
    assert same(F.linear(X, LINEAR), untouched)


def test_a_generator_that_is_closed_out_of_order(stand_in):
    untouched = F.linear(X, LINEAR)
    other = Doubled("other")

    def steps():
        with put_on([product()], stand_in=stand_in):
            yield F.linear(X, LINEAR)
            yield None

    running = steps()
    next(running)
    with put_on([product(name="other")], stand_in=other):
        F.linear(X, LINEAR)
        running.close()
        stand_in.launches.clear()
        F.linear(X, LINEAR)
        assert len(other.launches) == 2 and not stand_in.launches
    assert same(F.linear(X, LINEAR), untouched)


def test_nested_and_repeated(stand_in):
    outer, inner = put_on([product()], stand_in=stand_in), put_on([product()], stand_in=stand_in)
    untouched = F.linear(X, LINEAR)
    for _ in range(2):
        with outer:
            first = F.linear(X, LINEAR)
            with inner:
                assert same(F.linear(X, LINEAR), first)
            assert same(F.linear(X, LINEAR), first) and not same(first, untouched)
    with outer, pytest.raises(Exception, match="on already"):
        outer.__enter__()
    assert same(F.linear(X, LINEAR), untouched)


def test_an_implementation_that_refuses_is_torchs_own_and_says_why():
    broken = Doubled(fails=RuntimeError("its library is broken"))
    untouched = F.linear(X, LINEAR)
    with put_on([product()], stand_in=broken) as on, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert same(F.linear(X, LINEAR), untouched)
        assert "broken" in "\n".join(on.explain())


def test_a_target_without_a_product_is_refused():
    with put_on([action("product")]) as on:
        assert "names no product" in on.applications[0].objection


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = parameter(80, 96), parameter(48, 80)

    def forward(self, x):
        return F.linear(F.relu(F.linear(x, self.w)), self.v) + 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own, of Python and torch
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_code_that_the_program_compiles(backend, stand_in):
    torch._dynamo.reset()
    block = Block()
    compiled = torch.compile(block, backend=backend, fullgraph=True)
    untouched = compiled(X)
    with put_on([product()], block, stand_in):
        found = compiled(X)
        assert len(stand_in.launches) == 1
        compiled(X)
        assert len(stand_in.launches) == 2
        assert torch.allclose(found, block(X), atol=0.1, rtol=0.1)
        compiled(X[:3])  # no entry is for 3 tokens
        assert len(stand_in.launches) == 3
    assert same(compiled(X), untouched) and len(stand_in.launches) == 3
    with put_on([product()], block, stand_in):
        compiles = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        compiled(X)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiles


def test_many_sets_of_actions_do_not_use_up_what_may_be_compiled_again(stand_in):
    torch._dynamo.reset()
    compiled = torch.compile(Block(), backend="eager", fullgraph=True)
    for tokens in range(5, 25):
        with put_on([product(tokens=tokens)], stand_in=stand_in):
            compiled(X)
    for tokens in range(2, 6):
        compiled(X[:tokens])
    own = 8
    assert torch._dynamo.config.recompile_limit % own == 0


class TestFreed:
    """Originals in host memory while packed weights compute."""

    @pytest.fixture(autouse=True)
    def _not_compiled(self):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    def test_they_are_back_to_the_bit(self, stand_in):
        weight = parameter(80, 96)
        copy, untouched = weight.clone(), F.linear(X, weight)
        with put_on([product()], stand_in=stand_in, free_originals=True) as on:
            for _ in range(2):
                F.linear(X, weight)
            assert weight.untyped_storage().nbytes() == 0 and on.freed_bytes == 80 * 96 * 2
            assert len(stand_in.launches) == 2
        assert same(weight, copy) and same(F.linear(X, weight), untouched)

    @pytest.mark.parametrize(
        "use",
        [
            lambda w: w.sum(),
            lambda w: torch.stack([w, w]),
            lambda w: F.linear(X[:3], w),
            lambda w: w.t()[0].clone(),
            lambda w: w[3],
            lambda w: w.tolist(),
            lambda w: F.embedding(torch.tensor([3]), w),
        ],
    )
    def test_what_else_reads_them_finds_them(self, use, stand_in):
        weight = parameter(80, 96)
        before = use(weight)
        with put_on([product()], stand_in=stand_in, free_originals=True) as on:
            F.linear(X, weight)
            found = use(weight)
            assert found == before if isinstance(found, list) else same(found, before)
            F.linear(X, weight)
            assert on.freed_bytes == 0  # once is enough

    def test_compiling_brings_them_back(self, stand_in):
        weight = parameter(80, 96)
        before = weight.sum()
        with put_on([product()], stand_in=stand_in, free_originals=True) as on:
            F.linear(X, weight)
            assert on.freed_bytes
            assert same(torch.compile(lambda w: w.sum(), backend="eager")(weight), before)
            assert on.freed_bytes == 0
            F.linear(X, parameter(80, 96))
            assert on.freed_bytes == 0

    def test_an_exception_brings_them_back(self, stand_in):
        weight = parameter(80, 96)
        copy = weight.clone()
        on = put_on([product()], stand_in=stand_in, free_originals=True)
        with pytest.raises(KeyboardInterrupt), on:
            F.linear(X, weight)
            raise KeyboardInterrupt
        assert same(weight, copy)
