"""Control groups as files: what is written where, and when none may be made."""

from __future__ import annotations

import pytest

from kernel_compass.execution.control_group import GROUP_VARIABLE, new_control_group


@pytest.fixture
def parent(tmp_path):
    folder = tmp_path / "delegated"
    folder.mkdir()
    (folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
    return folder


def test_limits_are_written_into_a_group_of_its_own(parent):
    group = new_control_group("worker", 1 << 30, 100, {GROUP_VARIABLE: str(parent)})
    assert group.folder == parent / "worker"
    assert (group.folder / "memory.max").read_text() == str(1 << 30)
    assert (group.folder / "memory.swap.max").read_text() == "0"
    assert (group.folder / "pids.max").read_text() == "100"
    (group.folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert group.out_of_memory_kills() == 2
    group.kill()
    assert (group.folder / "cgroup.kill").read_text() == "1"


@pytest.mark.parametrize("controllers", ["", "cpu memory", "pids"])
def test_no_group_where_the_controllers_are_not_handed_down(parent, controllers):
    (parent / "cgroup.subtree_control").write_text(controllers)
    assert new_control_group("worker", 1, 1, {GROUP_VARIABLE: str(parent)}) is None
    assert not (parent / "worker").exists()


def test_no_group_where_none_may_be_made(parent, tmp_path):
    (parent / "worker").write_text("in the way")
    assert new_control_group("worker", 1, 1, {GROUP_VARIABLE: str(parent)}) is None
    missing = {GROUP_VARIABLE: str(tmp_path / "missing")}
    assert new_control_group("worker", 1, 1, missing) is None
    assert new_control_group("worker", 1, 1, {}, root=tmp_path / "nothing") is None
