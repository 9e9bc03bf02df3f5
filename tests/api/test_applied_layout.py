"""Copies that are left out: the same bits, and made late where anything could tell."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import torch.nn.functional as F
from api.applied_stand_ins import action, put_on

W = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))


def source():
    return torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(2)).transpose(0, 1)


def leave_out(**target):
    return action("layout", settings={"op": "aten::clone"}, **(target or {"shapes": ((3, 4, 5),)}))


def copied(x):
    return x.contiguous()


USES = {
    "linear": lambda x: F.linear(copied(x), W),
    "matmul": lambda x: copied(x) @ W.t(),
    "bmm": lambda x: torch.bmm(copied(x), x.transpose(1, 2)),
    "elementwise": lambda x: copied(x) * 2,
    "a view that needs the copy": lambda x: copied(x).view(-1),
    "strides": lambda x: torch.tensor(copied(x).stride()),
    "changed": lambda x: copied(x).add_(1),
    "source written": lambda x: (copied(x), x.mul_(2))[0],
    "source written through its base": lambda x: (copied(x), x._base.zero_())[0],
    "source written by out=": lambda x: (copied(x), torch.add(x, 1, out=x))[0],
    "read, then source written": lambda x: ((y := copied(x)) @ W.t(), x.mul_(2), y)[2],
    "indexed": lambda x: copied(x)[1],
    "pointer": lambda x: torch.tensor([copied(x).is_contiguous()]),
    "list": lambda x: torch.stack([copied(x), copied(x)]),
    "numpy": lambda x: torch.from_numpy(copied(x).numpy()),
    "clone": lambda x: x.clone(),
    "of itself": lambda x: copied(copied(x)),
    "kept": copied,
}


@pytest.mark.parametrize("use", USES)
def test_results_are_the_same_to_the_bit(use):
    wanted = USES[use](source())
    with put_on([leave_out()]) as on:
        for _ in range(2):
            found = USES[use](source())
            assert torch.equal(found, wanted)
        assert on.applications[0].uses
    assert found.stride() == wanted.stride() and torch.equal(found, wanted)


def test_the_copy_is_really_left_out():
    x, weight = torch.arange(20.0).view(5, 4).t(), torch.ones(6, 5)  # exact in any order
    with put_on([leave_out(shapes=((4, 5),))]):
        y = x.contiguous()
        assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
        y @ weight.t()
        assert y.untyped_storage()._cdata == x.untyped_storage()._cdata
        y.view(-1)
        assert y.untyped_storage()._cdata != x.untyped_storage()._cdata


def test_a_line_alone():
    x = source()
    line = copied.__code__.co_firstlineno + 1
    with put_on([leave_out(function=f"api/test_applied_layout.py:{line}")]) as on:
        copied(x)
        x.contiguous()
        assert on.applications[0].uses == 1
    with put_on([leave_out(function=f"test_applied_layout.py:{line + 1}")]) as on:
        copied(x)
        assert on.applications[0].uses == 0


def test_gradients_are_left_alone_and_nonsense_is_refused():
    x = source().requires_grad_()
    with put_on([leave_out()]) as on:
        x.contiguous().sum().backward()
        assert on.applications[0].uses == 0 and x.grad is not None
    with put_on([action("layout", settings={"op": "aten::mm"}, shapes=((1,),))]) as on:
        assert "no copy" in on.applications[0].objection
    with put_on([action("layout")]) as on:
        assert "neither a line nor shapes" in on.applications[0].objection
