"""Linear layers with the same input computed as one, in eager and in compiled code."""

from __future__ import annotations

import gc
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import torch.nn.functional as F
from api.applied_stand_ins import FORMAT, product, put_on
from api.dispatch_stand_ins import Doubled

from kernel_compass.api.actions.patching import layers_left
from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
K, PARTS = 96, (80, 32, 32)


def shared(name="stand_in", parts=PARTS, tokens=4, number_format=FORMAT):
    work = Workload(Op.LINEAR, 1, tokens, K, sum(parts))
    at = StepTarget(f"{work.shape_text} of {'+'.join(map(str, parts))}", workload=work, parts=parts)
    config = {"BLOCK": 64} if name == "stand_in" else {}
    return StepAction(StepActionKind.PRODUCT, at, Candidate(name, config, number_format))


class Attention(torch.nn.Module):
    """Three products of one input, and one of their sizes with another."""

    def __init__(self):
        super().__init__()
        made = torch.Generator().manual_seed(3)

        def weight(rows, columns):
            values = torch.randn(rows, columns, generator=made) * columns**-0.5
            return torch.nn.Parameter(values.bfloat16(), requires_grad=False)

        self.q, self.k, self.v = (weight(n, K) for n in PARTS)
        self.o, self.bias = weight(80, K), weight(1, 32)[0]
        self.back = weight(K, 80)

    def forward(self, x):
        q = F.linear(x, self.q)
        k = F.linear(x, self.k)
        v = F.linear(x, self.v, self.bias)
        mixed = F.linear(q * torch.cat((k, v, k[..., :16]), -1), self.back)
        return F.linear(mixed, self.o).view(-1), q.view(-1), k, v


@pytest.fixture
def stand_in():
    return Doubled()


@pytest.fixture
def module():
    return Attention().eval()


@pytest.fixture(autouse=True)
def _nothing_left():
    config = torch._inductor.config
    before = config.post_grad_custom_pre_pass
    torch._dynamo.reset()
    yield
    assert config.post_grad_custom_pre_pass == before
    assert torch.overrides._get_current_function_mode_stack() == [] and layers_left() == 0


def given(seed=5, shape=(4, K)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def off(found, reference):
    pairs = zip(found, reference, strict=True)
    return max(((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in pairs)


def columns(stand_in):
    return [shape for shape, _ in stand_in.launches]


def test_in_eager_code_the_first_product_computes_all(module, stand_in):
    untouched = module(given())
    with torch.no_grad(), put_on([shared()], module, stand_in) as on:
        assert all(torch.equal(a, b) for a, b in zip(module(given()), untouched, strict=True))
        assert not stand_in.launches  # that they follow one another was seen, and nothing more
        for seed in range(6, 9):
            stand_in.launches.clear()
            found = module(given(seed))
            assert len(stand_in.launches) == 1
            assert [one.stride() for one in found] == [one.stride() for one in untouched]
        assert on.products >= 3 and on.added_bytes > sum(PARTS) * K
    again = module(given())
    assert all(torch.equal(a, b) for a, b in zip(again, untouched, strict=True))


def test_right_for_each_input(module, stand_in):
    inputs = [given(seed) for seed in range(8)]
    untouched = [module(x) for x in inputs]
    with torch.no_grad(), put_on([shared()], module, stand_in):
        module(inputs[0])
        for x, reference in zip(inputs, untouched, strict=True):
            found = module(x)
            assert 0 < off(found, reference) < 0.05


@pytest.mark.parametrize("shape", [(4, K), (2, 2, K), (1, 4, 1, K)])
def test_in_compiled_code(module, stand_in, shape):
    untouched = module(given(shape=shape))
    with torch.no_grad():
        plain = torch.compile(module)(given(shape=shape))
        with put_on([shared()], module, stand_in) as on:
            compiled = torch.compile(module)
            compiled(given(shape=shape))
            stand_in.launches.clear()
            found = compiled(given(shape=shape))
            assert len(stand_in.launches) == 1 and on.products >= 1
            assert 0 < off(found, untouched) < 0.05
            assert [one.stride() for one in found] == [one.stride() for one in untouched]
    assert off(plain, untouched) < 0.02


def test_torchs_own_for_all_columns(module):
    """Joined, not quantized: the same products, in another kernel's order of sums."""
    untouched = module(given())
    action = shared("cublas_bf16", number_format="bf16")
    with torch.no_grad(), put_on([action], module) as on:
        for _ in range(2):
            found = module(given())
        assert off(found, untouched) < 0.01 and on.products >= 1
        assert on.added_bytes == 2 * sum(PARTS) * K


def test_beside_an_entry_of_its_own(module, stand_in):
    """What is computed with others is not computed alone; another layer of the sizes is."""
    own = product(reduction=K, columns=80)
    with torch.no_grad(), put_on([own, shared()], module, stand_in):
        for _ in range(3):
            stand_in.launches.clear()
            module(given())
        assert len(stand_in.launches) == 2
        compiled = torch.compile(module)
        for _ in range(2):
            stand_in.launches.clear()
            compiled(given())
        assert len(stand_in.launches) == 2


def test_an_input_that_is_written_between_is_another(module, stand_in):
    def step(x):
        q = F.linear(x, module.q)
        x.mul_(2)
        return q, F.linear(x, module.k), F.linear(x, module.v)

    reference = step(given())
    with torch.no_grad(), put_on([shared()], module, stand_in):
        for _ in range(2):
            module(given())  # learned here
        for _ in range(3):
            assert off(step(given()), reference) < 0.05
        for _ in range(2):
            assert off(torch.compile(step)(given()), reference) < 0.05


def test_weights_that_change_are_seen(module, stand_in):
    with torch.no_grad(), put_on([shared()], module, stand_in):
        for _ in range(2):
            module(given())
        module.k.mul_(3.0)
        reference = [F.linear(given(), w) for w in (module.q.clone(), module.k.clone())]
        for _ in range(3):
            assert off(module(given())[1:3], [reference[0].view(-1), reference[1]]) < 0.05
        module.k.data.mul_(2.0)
        wanted = F.linear(given(), module.k.clone())
        for _ in range(3):
            assert off([module(given())[2]], [wanted]) < 0.05


def test_between_the_products_too(module, stand_in):
    def step(x):
        q = F.linear(x, module.q)
        module.k.mul_(-1.0)
        return q, F.linear(x, module.k), F.linear(x, module.v)

    with torch.no_grad(), put_on([shared()], module, stand_in):
        for _ in range(2):
            module(given())
        for _ in range(4):
            found = step(given())
            assert off([found[1]], [F.linear(given(), module.k.clone())]) < 0.05


def test_products_that_do_not_belong_together(module, stand_in):
    """Some of them, another order, other tokens, inputs of their own."""

    def some(x):
        return F.linear(x, module.q), F.linear(x, module.k)

    def turned(x):
        return F.linear(x, module.v), F.linear(x, module.k), F.linear(x, module.q)

    def apart(x):
        return [F.linear(x.clone(), w) for w in (module.q, module.k, module.v)]

    steps = [some, turned, apart, lambda x: module(x[:3])]
    references = [step(given()) for step in steps]
    with torch.no_grad(), put_on([shared()], module, stand_in):
        for step, reference in zip(steps, references, strict=True):
            for _ in range(3):
                assert off(step(given()), reference) == 0
    assert not stand_in.launches


def test_one_that_is_left_out_later(module, stand_in):
    """Learned, and then only a part is called: right all the same."""
    wanted = [F.linear(given(), module.q), F.linear(given(), module.v)]
    with torch.no_grad(), put_on([shared()], module, stand_in):
        for _ in range(2):
            module(given())
        for _ in range(4):
            x = given()
            assert off([F.linear(x, module.q), F.linear(x, module.v)], wanted) < 0.05


def test_the_same_input_again_and_again(module, stand_in):
    x = given()
    reference = [F.linear(x, w) for w in (module.q, module.k, module.v)]
    with torch.no_grad(), put_on([shared()], module, stand_in):
        for count in range(5):
            stand_in.launches.clear()
            found = [F.linear(x, w) for w in (module.q, module.k, module.v)]
            assert off(found, reference) < 0.05
            assert len(stand_in.launches) == (count > 0)


def test_packed_weights_go_with_the_originals(module, stand_in):
    with torch.no_grad(), put_on([shared()], None, stand_in) as on:
        for _ in range(3):
            module(given())
        assert on.added_bytes > 0
        del module.q
        gc.collect()
        other = Attention().eval()
        for _ in range(3):
            other(given())
        assert len(on._shared.handles) == 1


def test_gradients_are_torchs(module, stand_in):
    x = given().requires_grad_()
    with put_on([shared()], module, stand_in):
        for _ in range(3):
            sum(one.float().sum() for one in module(x)).backward()
    assert x.grad is not None and not stand_in.launches


@pytest.mark.parametrize(
    ("parts", "why"), [((80, 32), "do not make up"), ((144,), "do not make up")]
)
def test_parts_that_do_not_fit(module, stand_in, parts, why):
    work = Workload(Op.LINEAR, 1, 4, K, 144)
    at = StepTarget("it", workload=work, parts=parts)
    wrong = StepAction(StepActionKind.PRODUCT, at, Candidate("stand_in", {}, FORMAT))
    with put_on([wrong], module, stand_in) as on:
        assert why in on.applications[0].objection
