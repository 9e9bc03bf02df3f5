"""Operands that are written into and put back are found; those that are read alone are not."""

from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from trying import tried  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner  # noqa: E402


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))


def by_torch(x):
    found = gelu(x.mul_(2.0) * 0.5)
    x.mul_(0.5)
    return found


def by_data(x):
    x.data.mul_(2.0)
    found = gelu(x * 0.5)
    x.data.mul_(0.5)
    return found


def by_numpy(x):
    array = x.numpy()
    array *= 2.0
    found = gelu(x * 0.5)
    array *= 0.5
    return found


def in_one_line(x):
    array = x.numpy()
    return [array.__imul__(2.0), gelu(x * 0.5), array.__imul__(0.5)][1]


def by_address(x):
    kept = x.flatten()[:1].clone()
    first = ctypes.c_float.from_address(x.data_ptr())
    if x.numel():
        first.value = -1.0
        first.value = float(kept)
    return gelu(x)


def by_a_helper(x):
    def scratch(array):
        array += 1.0
        return array.sum()

    kept = x.clone()
    scratch(x.numpy())
    x.data.copy_(kept)
    return gelu(x)


@pytest.mark.parametrize(
    "cheat", [by_torch, by_data, by_numpy, in_one_line, by_address, by_a_helper]
)
def test_what_is_put_back_is_found(cheat):
    said = tried("gelu", lambda: FunctionRunner(cheat))
    assert said.reason is Reason.CHANGES_INPUTS, said.detail
    assert "put it back" in said.detail


def in_place_on_a_copy(x):
    y = x.clone()
    y.mul_(0.7071067811865476).erf_().add_(1.0).mul_(x).mul_(0.5)
    return y


def read_by_numpy(x):
    return torch.from_numpy(x.numpy() * 0.5) * (1.0 + torch.erf(x * 0.7071067811865476))


def copied_onto_itself(x):
    """As Triton's interpreter does with all that a kernel is given."""
    x.untyped_storage().copy_(x.untyped_storage())
    return gelu(x)


def scratch_of_its_own(x):
    if x.shape not in _kept:
        _kept[x.shape] = torch.empty_like(x)
    scratch = _kept[x.shape].copy_(x)
    scratch.erfinv_()
    return torch.mul(x, 0.5) * (1.0 + torch.erf(torch.mul(x, 0.7071067811865476)))


_kept: dict = {}


@pytest.mark.parametrize(
    "kernel", [in_place_on_a_copy, read_by_numpy, copied_onto_itself, scratch_of_its_own]
)
def test_who_reads_alone_passes(kernel):
    said = tried("gelu", lambda: FunctionRunner(kernel))
    assert said.reason is None, said.detail
