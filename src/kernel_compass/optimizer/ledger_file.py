"""The SQLite file under a ledger: rows that are only ever added, each bound to those before it.

A row holds a canonical JSON document and a digest over itself and the digest before, so that a
changed byte is found even where SQLite's own check sees nothing. Reading never writes: where no
process writes, a copy is opened, and the file and its write-ahead log stay as they are.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from kernel_compass import __version__
from kernel_compass.codec.canonical import newer, older
from kernel_compass.errors import StudyError, shortened
from kernel_compass.optimizer.ledger_home import unreadable_home
from kernel_compass.optimizer.ledger_lock import unwritable

APPLICATION = int.from_bytes(b"KCLG", "big")
"""In the file's header: whose file it is."""
NAME = "kernel-compass/ledger"
VERSION = 1
_COPIES = 5
_BUSY_S = 10.0
_WAL = "-wal"
_AGAIN = (
    "Read it with the kernel-compass that wrote it (`kernel-compass export`), or start the study "
    "again; it was left as it is."
)
_START = ""
"""The digest before the first row."""
_TABLES = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE log (
    sequence INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    document TEXT NOT NULL,
    at TEXT NOT NULL,
    digest TEXT NOT NULL,
    UNIQUE (kind, key)
);
CREATE TRIGGER log_is_not_changed BEFORE UPDATE ON log
BEGIN SELECT raise(ABORT, 'a ledger is only ever added to'); END;
CREATE TRIGGER log_is_kept BEFORE DELETE ON log
BEGIN SELECT raise(ABORT, 'a ledger is only ever added to'); END;
"""
Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: Mapping[int, Migration] = {}
"""From each older version to the next, within a transaction on a copy; there is none before 1."""


class Row(NamedTuple):
    """One thing that happened."""

    sequence: int
    """From 1, without gaps."""
    kind: str
    key: str
    """Unique among the rows of its kind."""
    document: str
    at: str
    """ISO 8601, UTC."""
    digest: str


def chained(before: str, sequence: int, kind: str, key: str, document: str, at: str) -> Row:
    """A row with its digest.

    Args:
        before: the digest of the row before it; empty for the first.
        sequence: and the others: as in `Row`.
    """
    text = json.dumps([before, sequence, kind, key, document, at], ensure_ascii=True)
    return Row(sequence, kind, key, document, at, hashlib.sha256(text.encode()).hexdigest())


def build(path: Path, first: Row) -> None:
    """Make a file with its first row: whole under another name, then renamed.

    Raises:
        StudyError: it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.new")
    try:
        for leftover in path.parent.glob(f"{temporary.name}*"):  # of one that was killed here
            leftover.unlink()
        with sqlite_errors(path), closing(_connected(temporary)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN; {_TABLES}")
            insert(connection, first)
            connection.execute("COMMIT")
        os.replace(temporary, path)  # noqa: PTH105
        _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None


def insert(connection: sqlite3.Connection, row: Row) -> None:
    """Add a row."""
    connection.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", row)


def opened(path: Path) -> sqlite3.Connection:
    """A connection that writes; the caller holds the lock and has read the rows before.

    Raises:
        StudyError: it cannot be written.
    """
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            raise StudyError(
                f"{place} is read-only, so nothing more can be recorded there.",
                "Make it writable, or copy the study's folder and resume the copy by its path.",
            )
    with sqlite_errors(path):
        connection = _connected(path)
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
    if mode != "wal":
        connection.close()
        raise StudyError(
            f"The file system of {path} allows no write-ahead log.",
            "Set KERNEL_COMPASS_HOME to a folder on a local disk.",
        )
    return connection


def rows_of(path: Path, in_place: bool) -> tuple[Row, ...]:
    """All rows of a file of this or an older version, every one checked.

    Args:
        path: the file.
        in_place: whether a process writes it, so that it cannot be copied; reading it then writes
            nothing, as what readers share is there already.

    Raises:
        StudyError: it is no ledger, damaged, or a newer version's.
    """
    if in_place:
        with sqlite_errors(path), closing(_connected(path, read_only=True)) as connection:
            return _checked(connection, path)
    with tempfile.TemporaryDirectory(prefix="kernel-compass-") as folder:
        copy = Path(folder) / "copy.sqlite"
        copied(path, copy)
        with sqlite_errors(path), closing(_connected(copy)) as connection:
            return _checked(connection, path)


def version_of(path: Path) -> int:
    """The version of a file that was read without an error; the caller holds the lock."""
    with sqlite_errors(path), closing(_connected(path, read_only=True)) as connection:
        return _number(connection, "user_version")


def migrate(path: Path) -> Path:
    """Bring a file of an older version to this one; the old one is kept under another name.

    The caller holds the lock and has read the rows. A kill at any instant leaves the old file, or
    the new one, in its place.

    Returns:
        Where the old one is.
    """
    temporary = path.with_name(f"{path.name}.new")
    kept = path.with_name(f"{path.stem}-v{version_of(path)}{path.suffix}")
    with sqlite_errors(path), closing(_connected(path)) as connection:
        # What is in the log goes into the file, as at every close: a new file beside the old
        # one's log would be damaged by it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try:
        for leftover in path.parent.glob(f"{temporary.name}*"):
            leftover.unlink()
        copied(path, temporary)
        with sqlite_errors(path), closing(_connected(temporary)) as connection:
            _migrated(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not kept.exists():
            os.link(path, kept)
        os.replace(temporary, path)  # noqa: PTH105
        _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    return kept


def copied(path: Path, copy: Path) -> None:
    """Copy a file that nobody writes, and its log.

    Raises:
        StudyError: it cannot be read, or changes all the time.
    """
    log = path.with_name(path.name + _WAL)
    try:
        for _ in range(_COPIES):
            before = _state(path), _state(log)
            shutil.copyfile(path, copy)
            beside = copy.with_name(copy.name + _WAL)
            beside.unlink(missing_ok=True)
            if log.exists():
                shutil.copyfile(log, beside)
            if before == (_state(path), _state(log)):
                return
    except FileNotFoundError:
        found = f"There is no ledger in {path.parent}: the run was ended before it began."
        raise StudyError(found, "Start the study again; nothing of it was recorded.") from None
    except OSError as error:
        raise unreadable_home(path, error) from None
    found = f"{path} is being written by a process that holds no lock."
    raise StudyError(found, "End that process, then try again.")


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as those of a study.

    Raises:
        StudyError: with what SQLite said.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _study_error(path, error) from None
    except UnicodeError:
        raise damaged(path, "a text in it is none") from None


def damaged(path: Path, what: str) -> StudyError:
    """The error for a file that is not as it was written."""
    return StudyError(
        f"{path} is damaged: {what}.",
        "It was left as it is: restore it from a backup, or start a new study.",
    )


def of_another_version(path: Path, first: Row, what: str) -> StudyError:
    """The error for rows that are as they were written, and not as this version has them.

    Args:
        path: of the ledger.
        first: its first row, the study; it may name the version.
        what: is not as this version has it.
    """
    try:
        version = json.loads(first.document)["environment"]["kernel_compass"]
    except (ValueError, KeyError, TypeError):
        version = None
    by = f"kernel-compass {version}" if isinstance(version, str) else "another kernel-compass"
    return StudyError(
        f"{path} is of the schema {NAME}/{VERSION}, but {shortened(by)} wrote rows into it that "
        f"kernel-compass {__version__} does not read: {what}.",
        _AGAIN,
    )


def foreign(path: Path, what: str) -> StudyError:
    """The error for a file of something else."""
    return StudyError(
        f"{path} is no ledger of kernel-compass: {what}.",
        "It was left as it is: name the folder of a study (`kernel-compass history`).",
    )


def _study_error(path: Path, error: sqlite3.Error) -> StudyError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return damaged(path, "it is no SQLite database, or its beginning is overwritten")
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        why = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EACCES
        return unwritable(path, OSError(why, str(error)))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        found = f"{path} is locked by another program: {error}."
        return StudyError(found, "Close what has it open (an SQLite browser?), then try again.")
    if code == sqlite3.SQLITE_IOERR:
        found = f"{path}: the disk reports an error: {error}."
        return StudyError(found, "Check the disk; what was recorded before is still there.")
    return damaged(path, str(error))


def _checked(connection: sqlite3.Connection, path: Path) -> tuple[Row, ...]:
    connection.execute("BEGIN")
    application = _number(connection, "application_id")
    version = _number(connection, "user_version")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if application != APPLICATION:
        if not tables and not application:
            raise foreign(path, "it is an empty database")
        raise foreign(path, "it is a database of another program")
    if version > VERSION:
        raise newer(str(path), f"{NAME}/{version}", f"{NAME}/{VERSION}")
    if version < 0:
        raise damaged(path, f"its version is {version}, which never was")
    if version < VERSION and version not in MIGRATIONS:
        raise older(str(path), f"{NAME}/{version}", f"{NAME}/{VERSION}", _AGAIN)
    said = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    if said != ["ok"]:
        raise damaged(path, "; ".join(map(str, said[:3])))
    if version < VERSION:
        memory = sqlite3.connect(":memory:", isolation_level=None)
        with closing(memory):
            connection.execute("COMMIT")
            connection.backup(memory)
            _migrated(memory)
            return _verified(memory, path)
    if "log" not in tables:
        raise foreign(path, "its table `log` is missing")
    return _verified(connection, path)


def _verified(connection: sqlite3.Connection, path: Path) -> tuple[Row, ...]:
    found = connection.execute(
        "SELECT sequence, kind, key, document, at, digest FROM log ORDER BY sequence"
    )
    rows: list[Row] = []
    before = _START
    for sequence, *rest in found:
        *texts, digest = rest
        if sequence != len(rows) + 1 or not all(isinstance(text, str) for text in texts):
            raise damaged(path, f"row {len(rows) + 1} is missing or changed")
        row = chained(before, sequence, *texts)
        if row.digest != digest:
            raise damaged(path, f"row {sequence} ({row.kind}) was changed after it was written")
        rows.append(row)
        before = row.digest
    if not rows:
        raise damaged(path, "nothing is recorded in it")
    return tuple(rows)


def _migrated(connection: sqlite3.Connection) -> None:
    for version in range(_number(connection, "user_version"), VERSION):
        connection.execute("BEGIN")
        MIGRATIONS[version](connection)
        connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _connected(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """A connection without transactions of its own accord; threads take turns by a lock."""
    place = f"file:{quote(str(path))}" + ("?mode=ro" if read_only else "")
    return sqlite3.connect(
        place, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk once its folder is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
