"""The judge catches every cheat that a CPU can stage, by name, and lets the honest pass."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kernel_compass import api  # noqa: E402
from kernel_compass.validation import output_gate  # noqa: E402
from kernel_compass.validation import self_test as self_test_module  # noqa: E402
from kernel_compass.validation.machines import CpuMachine  # noqa: E402
from kernel_compass.validation.self_test import ALL_CHEATS, self_test  # noqa: E402
from kernel_compass.validation.watch import Watch  # noqa: E402

TOLD = []


@pytest.fixture(scope="module")
def outcome():
    """In a process of its own, as the command has it."""
    return api.run_self_test("cpu", TOLD.append)


def test_each_cheat_is_told_as_it_is_judged(outcome):
    assert tuple(TOLD) == outcome.results


def test_every_cheat_is_caught_by_name(outcome):
    missed = [f"{one.name}: {one.found} {one.detail}" for one in outcome.results if not one.caught]
    assert not missed
    assert len(outcome.results) == sum(cheat.device == "cpu" for cheat in ALL_CHEATS) >= 55


def test_the_honest_candidate_passes(outcome):
    assert outcome.honest_rejected is None
    assert outcome.passed


def test_what_cannot_be_staged_is_named(outcome):
    assert outcome.not_staged == ("leaves work on a side stream",)


def test_a_blind_judge_does_not_pass(monkeypatch):
    """The self-test can fail: with a gate that lets everything through, it says so."""
    few = [one for one in ALL_CHEATS if one.name in ("returns zeros", "returns the mean")]
    monkeypatch.setattr(self_test_module, "ALL_CHEATS", few)
    assert self_test(torch, CpuMachine(torch)).passed
    monkeypatch.setattr(
        output_gate, "check_outputs", lambda *a, **k: output_gate.GateFinding(None, "fine", 0.0)
    )
    blind = self_test(torch, CpuMachine(torch))
    assert [one.caught for one in blind.results] == [False, False]
    assert not blind.passed


def test_a_default_device_that_is_set_back_leaves_no_mode_behind():
    """What is set back as the CPU would be a mode around all that runs after."""
    watch = Watch(torch)
    before = torch._C._len_torch_function_stack()
    torch.set_default_device("meta")
    assert "default device" in watch.changed().detail
    assert torch.get_default_device() == torch.device("cpu")
    assert torch._C._len_torch_function_stack() == before


def test_inductors_address_is_no_switch_of_the_candidates(monkeypatch):
    name = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
    monkeypatch.setenv(name, "1")  # as a process that compiled before hands it on
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    watch = Watch(torch)
    monkeypatch.setenv(name, "2")
    assert watch.changed() is None
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert "OMP_NUM_THREADS" in watch.changed().detail
