"""The mark of a worker's family, and the end of families whose owner is gone.

A mark names the study, the owner and when the owner started, so that a number that another process
has by now is not taken for it; and the machine's boot and the namespace in which the number is one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_compass.execution.process_table import (
    Process,
    Table,
    descendants,
    end_family,
    environment_of,
    process,
    processes,
)
from kernel_compass.process_family import MARK_VARIABLE

_KIND = "worker"
_FOLDER = "kernel-compass-"
_OWNER = "owner"
_LONGEST_STUDY = 60


@dataclass(frozen=True)
class WorkerMark:
    """Who a process works for."""

    study: str
    owner: int
    """Process id."""
    owner_started: int
    place: str
    """Boot of the machine and namespace of process ids."""
    nonce: str

    @property
    def text(self) -> str:
        """As the environment holds it."""
        owner = f"{self.owner}.{self.owner_started}.{self.place}"
        return f"{_KIND}.{self.study}.{owner}.{self.nonce}"


@dataclass(frozen=True)
class Swept:
    """A process that was ended because its owner is gone."""

    pid: int
    study: str
    owner: int
    command: str


def new_worker_mark(study: str) -> WorkerMark:
    """A mark of this process."""
    me = process(os.getpid())
    assert me is not None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", study)[:_LONGEST_STUDY] or "none"
    return WorkerMark(name, me.pid, me.started, _place(), secrets.token_hex(8))


def mark_of(pid: int) -> WorkerMark | None:
    """The innermost worker mark of a process; `None` where it has none."""
    for text in reversed(environment_of(pid).get(MARK_VARIABLE, "").split(":")):
        found = _parsed(text)
        if found is not None:
            return found
    return None


def _parsed(text: str) -> WorkerMark | None:
    kind, *rest = text.split(".")
    if kind == _KIND and len(rest) == 5 and rest[1].isdigit() and rest[2].isdigit():
        return WorkerMark(rest[0], int(rest[1]), int(rest[2]), rest[3], rest[4])
    return None


def sweep() -> tuple[Swept, ...]:
    """End workers of this user whose owner is gone, with all they started; say which they were."""
    seen: dict[tuple[int, int], Swept] = {}

    def orphans(table: Table) -> list[Process]:
        found = _orphans(table)
        for one, mark in found.items():
            key = (one.pid, one.started)
            seen.setdefault(key, Swept(one.pid, mark.study, mark.owner, _command(one.pid)))
        return list(found)

    end_family(orphans)
    return tuple(seen.values())


def new_folder() -> Path:
    """A folder for workers, in the folder for temporary files; a file in it says whose it is.

    Not below the study, and with a short name: the path of a socket in TMPDIR has room for 107
    bytes.
    """
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    (folder / _OWNER).write_text(new_worker_mark("").text)
    return folder


def sweep_folders() -> tuple[Path, ...]:
    """Remove workers' folders of this user whose owner is gone; call it after `sweep`."""
    marks = {}
    for file in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_OWNER}"):
        with suppress(OSError, ValueError):
            marks[file.parent] = _parsed(file.read_text())
    table, place = processes(), _place()  # by now: who owns one of them is there, or gone
    found = [
        folder
        for folder, mark in marks.items()
        if mark and mark.place == place and _is_gone(mark, table) and _is_mine(folder)
    ]
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(found)


def _is_mine(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _orphans(table: Table) -> dict[Process, WorkerMark]:
    found: dict[Process, WorkerMark] = {}
    me, place = os.getuid(), _place()
    for one in table.values():
        if one.pid == os.getpid() or _user_of(one.pid) != me:
            continue
        mark = mark_of(one.pid)
        if mark is not None and mark.place == place and _is_gone(mark, table):
            found[one] = mark
    for one, mark in list(found.items()):
        for below in descendants(table, one.pid):
            if below.pid != os.getpid() and _user_of(below.pid) == me:
                found.setdefault(below, mark)
    return found


def _is_gone(mark: WorkerMark, table: Table) -> bool:
    owner = table.get(mark.owner)
    return owner is None or owner.started != mark.owner_started


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
    space = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))  # noqa: PTH115
    return f"{boot}-{space}"


def _user_of(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return ""
    return words.decode("utf-8", "replace").strip()[:200]
