"""What comes out of a call has values in memory that is the caller's from then on."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from concurrent.futures import Future

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from trying import tried  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner  # noqa: E402
from kernel_compass.validation.outputs import flat  # noqa: E402


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))


def freed(x):
    y = gelu(x)
    y.untyped_storage().resize_(0)
    return y


def promised(x):
    found = Future()
    found.set_result(gelu(x))
    return found


class LazyList(list):
    """Empty until somebody goes through it."""

    def __init__(self, make):
        super().__init__([torch.zeros(1)])
        self.make = make

    def __iter__(self):
        return iter([self.make()])


class LazyMapping(UserDict):
    """The same by name."""

    def __getitem__(self, name):
        return gelu(self.data[name])


NO_VALUES = {
    "meta": lambda x: gelu(x.to("meta")),
    "sparse": lambda x: gelu(x).to_sparse(),
    "compressed": lambda x: gelu(x).to_sparse_csr() if x.ndim == 2 else gelu(x),
    "quantized": lambda x: torch.quantize_per_tensor(gelu(x), 0.1, 0, torch.qint8),
    "given back": freed,
    "a list that is made later": lambda x: LazyList(lambda: gelu(x)),
    "numbers": lambda x: gelu(x).tolist(),
    "an array": lambda x: gelu(x).numpy(),
    "nothing": lambda x: None,
}
PROMISES = {
    "a generator": lambda x: (gelu(one) for one in [x]),
    "a function": lambda x: lambda: gelu(x),
    "a future": promised,
    "a mapping that computes": lambda x: LazyMapping(y=x),
    "negated when it is looked at": lambda x: torch._neg_view(gelu(x).neg()),
    "a functional tensor": lambda x: torch._to_functional_tensor(gelu(x)),
    "a fake one": lambda x: torch._subclasses.FakeTensorMode().from_tensor(x),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NO_VALUES)
def test_outputs_without_values_are_no_outputs(name):
    said = tried("gelu", lambda: FunctionRunner(NO_VALUES[name]))
    assert said.reason is Reason.WRONG_SHAPE, said.detail


@pytest.mark.parametrize("name", PROMISES)
def test_promises_are_no_outputs(name):
    said = tried("gelu", lambda: FunctionRunner(PROMISES[name]))
    assert said.reason is Reason.LAZY_RESULT, said.detail


Pair = namedtuple("Pair", "y")
CONTAINERS = {
    "a tensor": gelu,
    "a list": lambda x: [gelu(x)],
    "a named tuple": lambda x: Pair(gelu(x)),
    "an ordered dictionary": lambda x: OrderedDict(y=gelu(x)),
    "a parameter": lambda x: torch.nn.Parameter(gelu(x)),
    "a part of a larger one": lambda x: torch.stack([gelu(x), x])[0],
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_plain_containers_are_outputs(name):
    said = tried("gelu", lambda: FunctionRunner(CONTAINERS[name]))
    assert said.reason is None, said.detail


def test_torchs_own_tuples_are_outputs():
    assert len(flat(torch, torch.randn(3, 4).max(-1))) == 2


def into_its_input(x):
    """Past torch's counter, and put where the caller has its operand."""
    array = x.numpy()
    array[...] = gelu(x).numpy()
    return torch.from_numpy(array)


def test_an_output_in_an_operands_memory_is_found():
    said = tried("gelu", lambda: FunctionRunner(into_its_input))
    assert said.reason is Reason.CHANGES_INPUTS, said.detail
    said = tried("transposed", lambda: FunctionRunner(lambda x: x.t()))
    assert said.reason is None, said.detail  # as the baseline's does


class Later:
    """Keeps an operand, and takes its memory for the next call's result."""

    def __init__(self):
        self.kept = {}

    def __call__(self, x):
        memory = self.kept.get(x.shape)
        self.kept[x.shape] = torch.from_dlpack(x)
        return gelu(x) if memory is None else memory.copy_(gelu(x))


def test_memory_of_an_earlier_operand_is_the_callers():
    said = tried("gelu", lambda: FunctionRunner(Later()))
    assert said.reason is Reason.CHANGES_INPUTS, said.detail
    assert "earlier call" in said.detail


class ReadsTheLast:
    """Computes from the operand of the call before."""

    def __init__(self):
        self.kept = {}

    def __call__(self, x):
        last = self.kept.setdefault(x.shape, x)
        self.kept[x.shape] = x
        return gelu(last)


class Ring:
    """Hands out some buffers in turns."""

    def __init__(self, count):
        self.count, self.buffers, self.calls = count, {}, 0

    def __call__(self, x):
        self.calls += 1
        ring = self.buffers.setdefault(x.shape, [torch.empty_like(x) for _ in range(self.count)])
        return ring[self.calls % self.count].copy_(gelu(x))


@pytest.mark.parametrize("make", [ReadsTheLast, lambda: Ring(1), lambda: Ring(2), lambda: Ring(5)])
def test_results_of_other_calls_are_stale(make):
    said = tried("gelu", lambda: FunctionRunner(make()))
    assert said.reason is Reason.STALE_RESULT, f"{said.reason} {said.detail}"


class Workspace:
    """Two buffers for what lies between, in turns; results are the caller's."""

    def __init__(self):
        self.buffers, self.calls = {}, 0

    def __call__(self, x):
        self.calls += 1
        pair = self.buffers.setdefault(x.shape, [torch.empty_like(x) for _ in "ab"])
        work = pair[self.calls % 2].copy_(x).mul_(0.7071067811865476).erf_().add_(1.0)
        return x * 0.5 * work


def test_workspaces_in_turns_are_honest():
    said = tried("gelu", lambda: FunctionRunner(Workspace()))
    assert said.reason is None, said.detail
