"""A copy of the baseline is told by the values it makes, however it is spelled; no other is."""

from __future__ import annotations

import importlib
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from torch.nn import functional as F  # noqa: E402
from trying import tried  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner  # noqa: E402
from kernel_compass.validation.value_chain import made_of  # noqa: E402


def in_pieces(x, w):
    y, out = x @ w, x.new_zeros(x.shape[0], w.shape[1])
    half = y.shape[0] // 2
    out[:half] = y[:half]
    out[half:] = y[half:]
    return out


def into_a_buffer(x, w):
    out = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
    torch.mm(x, w, out=out)
    return out


def there_and_back(x, w):
    return (x @ w).float().double().to(x.dtype)


def through_the_interpreter(x, w):
    return torch.tensor((x @ w).tolist(), dtype=x.dtype)


def by_its_operator(x, w):
    return importlib.import_module("torch").ops.aten.mm.default(x, w)


COPIES = {
    "plus zero": lambda x, w: F.linear(x, w.t()) + 0,
    "cloned": lambda x, w: (x @ w).clone(),
    "times one": lambda x, w: torch.mm(x, w) * 1.0,
    "doubled and halved": lambda x, w: (x @ w) * 2 / 2,
    "einsum": lambda x, w: torch.einsum("mk,kn->mn", x, w),
    "addmm with zeros": lambda x, w: torch.addmm(x.new_zeros(w.shape[1]), x, w),
    "addmm without its sum": lambda x, w: torch.addmm(x[:1, :1], x, w, beta=0),
    "a batch of one": lambda x, w: torch.bmm(x[None], w[None])[0],
    "of copies": lambda x, w: x.clone() @ (w + 0.0),
    "clamped far away": lambda x, w: (x @ w).clamp(-1e30, 1e30),
    "in pieces": in_pieces,
    "into a buffer": into_a_buffer,
    "there and back": there_and_back,
    "through the interpreter": through_the_interpreter,
    "by its operator": by_its_operator,
}
OTHERS = {
    "another dtype": lambda x, w: (x.float() @ w.float()).to(x.dtype),
    "the operands swapped": lambda x, w: (w.t() @ x.t()).t().contiguous(),
    "another layout": lambda x, w: x @ w.t().contiguous().t(),
    "rows split": lambda x, w: torch.cat([part @ w for part in x.split(16)]),
    "columns split": lambda x, w: torch.cat([x @ part for part in w.split(16, 1)], 1),
    "k split": lambda x, w: sum(
        a.float() @ b.float() for a, b in zip(x.chunk(4, 1), w.chunk(4), strict=True)
    ).to(x.dtype),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_of_the_baseline_is_told(name):
    said = tried("long_product", lambda: FunctionRunner(COPIES[name]))
    assert said.reason is Reason.BASELINE_IN_DISGUISE, said.detail
    assert "down to mm" in said.detail


@pytest.mark.parametrize("name", OTHERS)
def test_the_same_library_used_otherwise_is_no_copy(name):
    said = tried("long_product", lambda: FunctionRunner(OTHERS[name]))
    assert said.reason is None, f"{said.reason}: {said.detail}"


def sum_in_blocks(block):
    def function(x):
        total = torch.zeros(x.shape[0])
        for start in range(0, x.shape[1], block):
            total += x[:, start : start + block].sum(1)
        return total

    return lambda: FunctionRunner(function)


def test_one_part_of_what_is_split_when_it_is_larger_is_no_copy():
    """At the third size all of it is one block; at the others it is not."""
    said = tried("row_sum", sum_in_blocks(128), 2)
    assert said.reason is None, said.detail
    said = tried("row_sum", sum_in_blocks(1 << 20), 2)
    assert said.reason is Reason.BASELINE_IN_DISGUISE


class Packed:
    """Takes the weight over, in a layout of its own or in none."""

    def __init__(self, pack):
        self.pack = pack

    def prepare(self, held):
        return self.pack(held["w"])

    def run(self, state, given):
        return F.gelu(torch.addmm(given["b"], given["x"], state.t()))


def test_a_weight_that_was_only_copied_is_no_packed_one():
    said = tried("linear", lambda: Packed(torch.clone))
    assert said.reason is Reason.BASELINE_IN_DISGUISE, said.detail
    said = tried("linear", lambda: Packed(lambda w: w.t().contiguous().t()))
    assert said.reason is None, said.detail


def test_several_outputs_are_told_together():
    x = torch.randn(20, 30, generator=torch.Generator().manual_seed(1))
    theirs = made_of(torch, {"x": x}, lambda: (x.sum(-1), x.amax(-1)))
    copy = made_of(torch, {"x": x}, lambda: [torch.sum(x, 1) + 0, x.amax(1).clone()], theirs)
    half = made_of(torch, {"x": x}, lambda: [x.sum(-1), x.sort(-1).values[:, -1]], theirs)
    assert theirs.last == ("sum", "amax")
    assert copy.outputs == theirs.outputs
    assert half.outputs[0] == theirs.outputs[0]
    assert half.outputs[1] != theirs.outputs[1]


def test_a_baseline_that_makes_no_value_has_no_copy():
    x = torch.randn(20, 30)
    assert made_of(torch, {"x": x}, lambda: x.t().clone()).last == ()
    assert tried("transposed", lambda: FunctionRunner(lambda x: x.t().clone())).reason is None


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs g++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_compiler_fuses_is_no_copy():
    """The compiler's own kernels run when values are followed, not the code that they came from."""
    compiled = torch.compile(lambda x, b: torch.relu(x + b), dynamic=True)
    x, b = torch.randn(12, 8), torch.randn(8)
    compiled(x, b)
    theirs = made_of(torch, {"x": x, "b": b}, lambda: torch.relu(x + b))
    ours = made_of(torch, {"x": x, "b": b}, lambda: compiled(x, b), theirs)
    assert theirs.last == ("relu",)
    assert ours.outputs != theirs.outputs
