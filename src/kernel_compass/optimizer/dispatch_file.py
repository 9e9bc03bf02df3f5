"""The file of a dispatch table: read, merged into, and reverted; replaced whole or not at all.

Beside `compass.json` lies `compass.json.log`, a line of JSON for every change, with the entries it
added or took out: the table itself then says again, byte for byte, what it said before a study,
and what was reverted is not lost. A line is written before the change is made. A table whose last
entry is reverted is removed, as there was none before the first. The log is also what two
processes that change the table wait for each other by.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kernel_compass.access import access_remedy
from kernel_compass.codec.canonical import compact
from kernel_compass.codec.dispatch_table import decode, encode, entry_part
from kernel_compass.codec.json_reading import file_bytes
from kernel_compass.codec.step_entry import step_part
from kernel_compass.errors import StudyError, shortened
from kernel_compass.records.dispatch import DispatchEntry, DispatchTable
from kernel_compass.records.environment import Environment
from kernel_compass.records.step_action import StepEntry

LOG_SCHEMA = "kernel-compass/dispatch-log/1"
Entry = DispatchEntry | StepEntry
"""A product, or a change to a step."""


def read_table(path: Path) -> DispatchTable:
    """The table in a file.

    Raises:
        StudyError: there is none, or it cannot be used.
    """
    return decode(_bytes(path), shortened(str(path)))


def merge(
    path: Path,
    entries: Sequence[DispatchEntry],
    environments: Mapping[str, Environment],
    steps: Sequence[StepEntry] = (),
) -> DispatchTable:
    """Add entries to a table; what other studies contributed stays, the better one is in force.

    Args:
        path: the file; made where there is none.
        entries: products to add; nothing to add = nothing is written.
        environments: where their studies measured.
        steps: changes to steps to add.

    Returns:
        The table as it is now.

    Raises:
        StudyError: the file is none of this tool's, was edited, or cannot be written.
    """
    path = path.resolve()
    if not entries and not steps:
        return read_table(path) if path.exists() else DispatchTable()

    def change(table: DispatchTable) -> tuple[DispatchTable, Sequence[Entry]]:
        return table.merged(entries, environments, steps), [*entries, *steps]

    return _changed(path, "merge", change)[0]


def revert(
    path: Path, study: str, trial: int | None = None
) -> tuple[DispatchTable, tuple[Entry, ...]]:
    """Take out what a study, or one trial of it, contributed.

    Returns:
        The table as it is now, and what was taken out.

    Raises:
        StudyError: nothing in the table is of that study or trial; or the file is none of this
            tool's, was edited, or cannot be written.
    """
    path = path.resolve()
    _bytes(path)  # there must be a table before there is a log beside it

    def change(table: DispatchTable) -> tuple[DispatchTable, Sequence[Entry]]:
        taken: list[Entry] = [*table.of(study, trial), *table.steps_of(study, trial)]
        if not taken:
            raise _nothing_of(path, table, study, trial)
        return table.without(study, trial), taken

    table, taken = _changed(path, "revert", change)
    return table, tuple(taken)


_Change = Callable[[DispatchTable], tuple[DispatchTable, Sequence[Entry]]]


def _changed(path: Path, action: str, change: _Change) -> tuple[DispatchTable, Sequence[Entry]]:
    """Change a table, alone; the line of the log is on the disk before the table is."""
    try:
        if os.path.lexists(path):
            _own(path)  # refused before anything is made beside it
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        with _log(path) as log:
            before = _own(path) if os.path.lexists(path) else DispatchTable()
            after, entries = change(before)
            data = encode(after)
            _append(log, action, entries)
            if after.empty:
                path.unlink(missing_ok=True)
            else:
                _replace(path, data)
            return after, entries
    except OSError as error:
        found = f"{path} cannot be changed: {error.strerror or error}."
        remedy = access_remedy(path, error, "name another table: --table FILE", writing=True)
        raise StudyError(found, remedy) from None


def _own(path: Path) -> DispatchTable:
    """A table that this version wrote and nobody changed; nothing else is ever overwritten."""
    data = _bytes(path)
    table = decode(data, shortened(str(path)))
    if encode(table) != data:
        raise StudyError(
            f"{path} was edited, or written by another program: it is not as kernel-compass "
            "writes it, so a revert could not restore it byte for byte.",
            "It was left as it is: name another table.",
        )
    return table


def _bytes(path: Path) -> bytes:
    try:
        return file_bytes(path)
    except FileNotFoundError:
        raise StudyError(
            f"There is no dispatch table {path}.",
            "Name one that is there; `kernel-compass apply STUDY --table FILE` writes one.",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror or error if isinstance(error, OSError) else error
        found = f"{shortened(str(path))} cannot be read: {reason}."
        remedy = access_remedy(path, error, "name another table")
        raise StudyError(found, remedy) from None


@contextmanager
def _log(path: Path) -> Iterator[int]:
    place = path.with_name(f"{path.name}.log")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    log = os.open(place, flags, 0o644)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield log
    finally:
        os.close(log)


def _append(log: int, action: str, entries: Sequence[Entry]) -> None:
    size = os.fstat(log).st_size
    torn = size > 0 and os.pread(log, 1, size - 1) != b"\n"  # a kill in the middle of a line
    try:
        parts = [entry_part(one) for one in entries if isinstance(one, DispatchEntry)]
        steps = [step_part(one) for one in entries if isinstance(one, StepEntry)]
    except ValueError as error:
        raise StudyError(f"An entry contradicts itself: {error}.", "Nothing was written.") from None
    line = {
        "schema": LOG_SCHEMA,
        "action": action,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "entries": parts,
        **({"steps": steps} if steps else {}),
    }
    os.write(log, (b"\n" if torn else b"") + compact(line) + b"\n")
    os.fsync(log)


def _replace(path: Path, data: bytes) -> None:
    """Write beside the file, then rename over it."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _nothing_of(path: Path, table: DispatchTable, study: str, trial: int | None) -> StudyError:
    what = study if trial is None else f"{study}:{trial}"
    known = sorted({one.reference for one in table.all_entries})
    return StudyError(
        f"Nothing in {path} is of {shortened(what)}.",
        f"It holds {', '.join(known[:10])}{' ...' if len(known) > 10 else ''}: name one of those. "
        "`kernel-compass history` lists the studies that were recorded.",
    )
