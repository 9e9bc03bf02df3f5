"""Limits kept by the kernel: a control group (version 2) for a worker, where we may make one.

It is made under the group that `KERNEL_COMPASS_CGROUP` names, else under this process's own, and
only where that one hands down the controllers `memory` and `pids`: a group delegated to the user,
by `systemd-run --user -p Delegate=yes` for one. Elsewhere a watchdog alone keeps the limits.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GROUP_VARIABLE = "KERNEL_COMPASS_CGROUP"
_ROOT = Path("/sys/fs/cgroup")
_NEEDED = frozenset(["memory", "pids"])
_REMOVE_S = 2.0
_TICK_S = 0.02


@dataclass(frozen=True)
class ControlGroup:
    """The group of one worker after the other; what a task starts is in it, whatever it does."""

    folder: Path

    def kill(self) -> None:
        """Kill all that is in it, at one instant (Linux 5.14)."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")

    def out_of_memory_kills(self) -> int:
        """How many processes the kernel ended in it for the memory limit."""
        with contextlib.suppress(OSError):
            for line in (self.folder / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def remove(self) -> None:
        """Remove it; what was in it must have been killed."""
        deadline = time.monotonic() + _REMOVE_S
        while self.folder.exists() and time.monotonic() < deadline:
            try:
                self.folder.rmdir()
            except OSError:  # a process has not left it yet
                time.sleep(_TICK_S)


def new_control_group(
    name: str,
    memory_bytes: int,
    tasks: int,
    environment: Mapping[str, str] = os.environ,
    root: Path = _ROOT,
) -> ControlGroup | None:
    """A group with these limits; `None` where we may not make one.

    Args:
        name: of its folder.
        memory_bytes: of all in it, swap not used.
        tasks: processes and threads in it.
        environment: where the group to make it under may be named.
        root: where control groups are mounted.
    """
    parent = _parent(environment, root)
    if parent is None or not _controllers(parent) >= _NEEDED:
        return None
    group = ControlGroup(parent / name)
    try:
        group.folder.mkdir()
    except OSError:
        return None
    try:
        (group.folder / "memory.max").write_text(str(memory_bytes))
        (group.folder / "pids.max").write_text(str(tasks))
    except OSError:
        group.remove()
        return None
    with contextlib.suppress(OSError):  # a kernel without swap accounting
        (group.folder / "memory.swap.max").write_text("0")
    return group


def _parent(environment: Mapping[str, str], root: Path) -> Path | None:
    if named := environment.get(GROUP_VARIABLE):
        return Path(named)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                return root / line[len("0::/") :]
    return None


def _controllers(group: Path) -> frozenset[str]:
    try:
        return frozenset((group / "cgroup.subtree_control").read_text().split())
    except OSError:
        return frozenset()
