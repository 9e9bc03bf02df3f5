"""Guards of a width that nobody knows: what is written far beside operands shows."""

from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from trying import tried  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402
from kernel_compass.validation.cheat_parts import FunctionRunner  # noqa: E402
from kernel_compass.validation.guards import ALIGNMENT, all_intact, guard_all, guarded  # noqa: E402


def test_widths_differ_from_call_to_call_and_keep_to_an_alignment():
    tensor = torch.randn(5, 7)
    found = [guarded(torch, tensor) for _ in range(40)]
    before, behind = ({one.first for one in found}, {one.block.numel() - one.last for one in found})
    assert len(before) > 20
    assert len(behind) > 20
    assert all(width % ALIGNMENT == 0 for width in before)
    assert min(before | behind) >= 4096
    assert max(behind) >= 1 << 16
    for one in found:
        assert torch.equal(one.value, tensor)
        assert one.intact(0xFF)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool])
def test_what_is_not_shown_looks_as_if_it_were_alone(dtype):
    tensor = torch.randn(6, 10).to(dtype).t()
    shown, hidden = (guarded(torch, tensor, shown=one) for one in (True, False))
    assert shown.value.storage_offset() > 0
    assert hidden.value.storage_offset() == 0
    assert hidden.value.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    for one in (shown, hidden):
        assert one.value.stride() == tensor.stride()
        assert torch.equal(one.value.float(), tensor.float())
        one.block[one.last + 4000] = 1
        assert not one.intact(0xFF)


def test_a_slice_of_the_first_axis_lies_behind():
    tensor = torch.zeros(2, 3, 1 << 18)
    given, guards = guard_all(torch, {"x": tensor}, 0, shown=False)
    size = tensor.element_size()
    beyond = given["x"].data_ptr() + tensor.numel() * size + (3 << 18) * size - 4
    ctypes.memset(beyond, 1, 4)  # the last number of a third slice
    assert not all_intact(guards, 0)


def writes(numbers_away):
    """Right, and 64 numbers behind its operand, or before it, are zero now."""

    def function(x):
        behind = x.numel() if numbers_away >= 0 else 0
        place = x.storage_offset() + behind + numbers_away
        if 0 <= place < x.untyped_storage().nbytes() // 4 - 64:
            torch.as_strided(x, (64,), (1,), place).zero_()
        return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))

    return lambda: FunctionRunner(function)


@pytest.mark.parametrize("numbers_away", [0, 1024, 5000, -64, -1088, -5000])
def test_writes_far_beside_an_operand_are_found(numbers_away):
    said = tried("gelu", writes(numbers_away))
    assert said.reason is Reason.WRITES_OUTSIDE, said.detail


def test_who_writes_only_where_guards_do_not_show_is_found():
    """Operands that look as if they were alone have guards, too."""

    def function(x):
        if x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * 4 > 4000:
            seen.append(x.data_ptr())
        return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))

    seen = []
    assert tried("gelu", lambda: FunctionRunner(function)).reason is None
    assert len(seen) > 20  # most calls


def one_too_many(x):
    """The number behind its output is written; where malloc leaves none free, it is not."""
    out = torch.empty_like(x)
    size = x.numel() * 4
    if size % 16 != 8:
        ctypes.memset(out.data_ptr() + size, 0, 4)
    return out.copy_(x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)))


def its_own_padding(x):
    """It allocates more than it returns, and writes there."""
    memory = torch.zeros(x.numel() + 64)
    memory[x.numel() :] = 1.0
    out = memory[: x.numel()].view(x.shape)
    return out.copy_(x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)))


def test_writes_beside_its_own_memory_are_found():
    said = tried("gelu", lambda: FunctionRunner(one_too_many), 2)
    assert said.reason is Reason.WRITES_OUTSIDE
    assert "memory that it had allocated" in said.detail


@pytest.mark.parametrize("index", range(3))
def test_what_it_allocates_is_its_own(index):
    said = tried("gelu", lambda: FunctionRunner(its_own_padding), index)
    assert said.reason is None, said.detail
