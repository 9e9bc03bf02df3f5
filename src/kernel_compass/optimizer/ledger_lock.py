"""One writer a study: a lock that the operating system takes back when its owner dies.

The lock is POSIX's: a worker that is forked does not inherit it, so that none keeps it behind a
dead owner. It is lost when its process closes any descriptor of the file, so the file is never
opened for anything else here; what the owner says of itself lies beside it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any

from kernel_compass.access import access_remedy
from kernel_compass.errors import StudyError, shortened
from kernel_compass.optimizer.ledger_home import ELSEWHERE

LOCK = "writer.lock"
OWNER = "writer.json"
_FLOCK = "hhqqi0q"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""
_HELD: dict[str, int] = {}
"""Folders that this process writes in, and its id: a forked child writes in none of them."""


class WriterLock:
    """Held from the call to `release`.

    Args:
        folder: of the study.

    Raises:
        StudyError: another process writes there, or this one does already; or the folder cannot be
            written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._name = str(self._folder)
        if holds(folder):
            raise StudyError(
                f"The study in {folder} is being written by this very process.",
                "Close the ledger that it has open first.",
            )
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._folder / LOCK, flags, 0o644)
        except OSError as error:
            raise unwritable(folder, error) from None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _HELD[self._name] = os.getpid()
            self._sign()
        except (BlockingIOError, PermissionError):
            self._let_go()
            raise _taken(folder) from None
        except OSError as error:
            self._let_go()
            raise unwritable(folder, error) from None

    def release(self) -> None:
        """Let others write; once is enough."""
        if self._file < 0:
            return
        if _HELD.get(self._name) == os.getpid():
            (self._folder / OWNER).unlink(missing_ok=True)
        self._let_go()

    def _let_go(self) -> None:
        if _HELD.get(self._name) == os.getpid():
            del _HELD[self._name]
        os.close(self._file)
        self._file = -1

    def _sign(self) -> None:
        said = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": shortened(" ".join(sys.argv)),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        for leftover in self._folder.glob(f".{OWNER}.*"):  # of one that was killed here
            leftover.unlink()
        temporary = self._folder / f".{OWNER}.{os.getpid()}"
        temporary.write_text(json.dumps(said), encoding="utf-8")
        temporary.replace(self._folder / OWNER)


def holds(folder: Path) -> bool:
    """Whether this process writes there."""
    return _HELD.get(str(folder.resolve())) == os.getpid()


def writer_of(folder: Path) -> int | None:
    """The id of the process that writes there; `None` = none does. 0: it is one of another host or
    container."""
    if holds(folder):
        return os.getpid()
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if found[0] == fcntl.F_UNLCK else max(int(found[4]), 0)


def unwritable(path: Path, error: OSError) -> StudyError:
    """The error for a folder or file that cannot be written."""
    found = f"{path} cannot be written: {error.strerror or error}."
    otherwise = ELSEWHERE
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        otherwise = f"`df {quote(str(path.parent))}` shows what space is left; or {ELSEWHERE}"
    return StudyError(found, access_remedy(path, error, otherwise, writing=True))


def _taken(folder: Path) -> StudyError:
    owner, pid = _owner(folder), writer_of(folder)
    who = f"process {pid}" if pid else "another process"
    if owner and (not pid or owner.get("pid") == pid):
        who = f"process {owner.get('pid')} on {owner.get('host')}, since {owner.get('since')}"
        who += f" (`{owner.get('command')}`)"
    return StudyError(
        f"The study in {folder} is being written by {who}.",
        "Wait until it has ended, or end it (Ctrl-C there) and resume.",
    )


def _owner(folder: Path) -> dict[str, Any] | None:
    """What the present or last owner said of itself."""
    try:
        found = json.loads((folder / OWNER).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
