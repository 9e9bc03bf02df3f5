"""`captures.json`, which says what the captures of a folder are, and the lock around its changes.

The lock is on the folder itself: no lock file stays behind, and a job that dies holds nothing.
Hosts that share a network folder may not see each other's lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernel_compass.errors import DamagedCapture, NotAMetricTable

INDEX_NAME = "captures.json"
SCHEMA = "kernel-compass/captures/1"
SAVE_AGAIN = "kernel-compass profile --save FOLDER writes such a folder."

_MAX_INDEX = 64 << 20
_LOCK_WAIT_S = 30.0
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder alone; where the file system has no locks, go on without.

    Raises:
        OSError: another process holds it for too long.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + _LOCK_WAIT_S
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise OSError(f"another process keeps {folder} locked") from error
                time.sleep(0.01)
                continue
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            break
        yield
    finally:
        os.close(handle)


def write_index(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Replace a folder's `captures.json` as a whole.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    index = folder / INDEX_NAME
    new = index.with_suffix(f".{os.getpid()}.tmp")
    try:
        text = json.dumps({"schema": SCHEMA, "captures": entries}, indent=2)
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(index)
    except RecursionError as error:
        raise OSError(f"{index} is nested too deeply") from error
    finally:
        new.unlink(missing_ok=True)


def read_index(folder: Path) -> list[dict[str, Any]]:
    """The entries of a folder's `captures.json`, each an object of unchecked content.

    Raises:
        NotAMetricTable: there is none that can be read.
        DamagedCapture: it is not one.
    """
    index = folder / INDEX_NAME
    try:
        document = json.loads(_index_bytes(index).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DamagedCapture(f"{index} is no JSON: {reason}.", SAVE_AGAIN) from error
    captures = document.get("captures") if isinstance(document, dict) else None
    if not isinstance(captures, list) or document.get("schema") != SCHEMA:
        raise DamagedCapture(f"{index} is not of the schema {SCHEMA}.", SAVE_AGAIN)
    if not all(isinstance(entry, dict) for entry in captures):
        raise DamagedCapture(f"{index} has an entry that is no object.", SAVE_AGAIN)
    return captures


def _index_bytes(index: Path) -> bytes:
    try:
        handle = os.open(index, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for ever
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise DamagedCapture(f"{index} is not a regular file.", SAVE_AGAIN)
            if facts.st_size > _MAX_INDEX:
                raise DamagedCapture(f"{index} has over {_MAX_INDEX >> 20} MiB.", SAVE_AGAIN)
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(_MAX_INDEX)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NotAMetricTable(f"{index} cannot be read: {reason}.", SAVE_AGAIN) from error
