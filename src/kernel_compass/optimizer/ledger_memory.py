"""The user's memory of rejected ideas, over all studies: one SQLite file, any number of writers."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kernel_compass.codec.canonical import compact, newer, older, plain, reshaped
from kernel_compass.errors import StudyError, UsageError
from kernel_compass.optimizer.ledger_file import sqlite_errors
from kernel_compass.optimizer.ledger_home import data_folder, unreadable_home
from kernel_compass.optimizer.ledger_lock import unwritable
from kernel_compass.records.rejected import Idea, RejectedIdea
from kernel_compass.records.trial import Outcome, Reason, Trial

FILE = "rejected.sqlite"
NAME = "kernel-compass/rejected"
VERSION = 1
APPLICATION = int.from_bytes(b"KCRJ", "big")
NOT_KEPT = frozenset(
    {
        Reason.CANCELLED,
        Reason.OUTDONE,
        Reason.TOOL_FAILED,
        Reason.CANNOT_BE_TIMED,  # an unquiet machine gives it, too
        Reason.REMEMBERED,
        Reason.CANNOT_PAY,
    }
)
"""Reasons that say nothing of the idea, or are found anew at no cost."""
_BUSY_S = 20.0
_TABLE = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE rejected (
    key TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    digest TEXT NOT NULL
);
"""
_REMEDY = "Move it away (what was rejected is then tried again), or restore it from a backup."


class RejectionMemory:
    """What was rejected, looked up by the idea.

    Args:
        path: the file, made when something is first remembered; default: the user's.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = data_folder() / FILE if path is None else path
        self._sound: tuple[int, ...] | None = None
        """The file as it was when SQLite looked through the whole of it."""

    def remember(self, idea: Idea, trial: Trial, study: str) -> bool:
        """Keep the rejection of an idea; a later one of the same idea replaces it.

        Args:
            idea: what was tried.
            trial: how it ended; of one that was accepted nothing is kept, and what was kept of
                the same idea is forgotten.
            study: whose trial it is.

        Returns:
            Whether it is kept.

        Raises:
            StudyError: the file cannot be used or written.
        """
        key = idea_key(idea)
        if trial.outcome is Outcome.ACCEPTED:
            self._forget([key])
            return False
        if trial.reason is None or trial.reason in NOT_KEPT:
            return False
        at = datetime.now(UTC).isoformat(timespec="seconds")
        found = RejectedIdea(idea, trial.reason, trial.detail, study, trial.number, at)
        text = compact(plain(found)).decode()
        with self._writing() as connection:
            row = (key, text, _digest(key, text))
            connection.execute("INSERT OR REPLACE INTO rejected VALUES (?, ?, ?)", row)
        return True

    def recall(self, idea: Idea) -> RejectedIdea | None:
        """How an idea was rejected before; `None` = it was not.

        Raises:
            StudyError: the file cannot be used.
        """
        with self._reading() as connection:
            if connection is None:
                return None
            query = "SELECT key, document, digest FROM rejected WHERE key = ?"
            row = connection.execute(query, (idea_key(idea),)).fetchone()
            return None if row is None else self._rejected(*row)

    def all(self) -> tuple[RejectedIdea, ...]:
        """Everything that is remembered, the latest last.

        Raises:
            StudyError: the file cannot be used.
        """
        return tuple(one for _, one in self._rows())

    def forget(
        self,
        implementation: str | None = None,
        workload: str | None = None,
        study: str | None = None,
        everything: bool = False,
    ) -> int:
        """Forget what fits all that is given, so that it is tried again.

        Returns:
            How many were forgotten.

        Raises:
            UsageError: nothing is given, or something beside `everything`.
            StudyError: the file cannot be used or written.
        """
        given = [one is not None for one in (implementation, workload, study)]
        if everything == any(given):
            found = "What is to be forgotten is not said."
            if everything:
                found = "--all is everything, and a part of it is named, too."
            raise UsageError(found, "Name an implementation, a workload or a study, or --all.")
        keys = [
            key
            for key, one in self._rows()
            if implementation in (None, one.idea.candidate.implementation)
            and workload in (None, one.idea.workload)
            and study in (None, one.study)
        ]
        return self._forget(keys)

    def _forget(self, keys: list[str]) -> int:
        if not keys or not self._exists():
            return 0
        with self._writing() as connection:
            found = [
                connection.execute("DELETE FROM rejected WHERE key = ?", (key,)).rowcount
                for key in keys
            ]
        return sum(found)

    def _rows(self) -> list[tuple[str, RejectedIdea]]:
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT key, document, digest FROM rejected").fetchall()
        found = [(row[0], self._rejected(*row)) for row in rows]
        return sorted(found, key=lambda one: (one[1].at, one[1].study, one[1].trial, one[0]))

    def _rejected(self, key: Any, text: Any, digest: Any) -> RejectedIdea:
        if not isinstance(text, str) or _digest(key, text) != digest:
            raise self._damaged("a row was changed after it was written")
        try:
            return reshaped(msgspec.json.decode(text), RejectedIdea)
        except (ValueError, msgspec.MsgspecError) as error:
            raise self._damaged(str(error)) from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if not self._exists():
            yield None
            return
        place = f"{self.path.resolve().as_uri()}?mode=ro"
        with (
            sqlite_errors(self.path),
            closing(sqlite3.connect(place, uri=True, timeout=_BUSY_S)) as connection,
        ):
            yield connection if self._check(connection) else None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from None
        if self._exists() and not os.access(self.path, os.W_OK):
            raise unwritable(self.path, PermissionError(errno.EACCES, "it is read-only"))
        with (
            sqlite_errors(self.path),
            closing(
                sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
            ) as connection,
        ):
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._check(connection):
                    for statement in filter(str.strip, _TABLE.split(";")):
                        connection.execute(statement)
                yield connection
                connection.execute("COMMIT")
                self._sound = _seen(self.path)
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _check(self, connection: sqlite3.Connection) -> bool:
        """Whether it is a memory of this version; False: it is empty.

        Raises:
            StudyError: it is something else, or damaged.
        """
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not tables and not application:
            return False
        if application != APPLICATION or (version == VERSION and "rejected" not in tables):
            found = f"{self.path} is no memory of rejected ideas of kernel-compass."
            raise StudyError(found, "It was left as it is; set KERNEL_COMPASS_HOME elsewhere.")
        if version > VERSION:
            raise newer(str(self.path), f"{NAME}/{version}", f"{NAME}/{VERSION}")
        if version != VERSION:
            raise older(str(self.path), f"{NAME}/{version}", f"{NAME}/{VERSION}", _REMEDY)
        seen = _seen(self.path)
        if seen != self._sound:  # it takes time with the number of rows
            said = [text for (text,) in connection.execute("PRAGMA integrity_check")]
            if said != ["ok"]:
                raise self._damaged(f"SQLite says: {said[0]}")
            self._sound = seen
        return True

    def _exists(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:
            raise unreadable_home(self.path, error) from None

    def _damaged(self, what: str) -> StudyError:
        return StudyError(f"{self.path} is damaged: {what}.", _REMEDY)


def idea_key(idea: Idea) -> str:
    """What two ideas have in common that are the same.

    Raises:
        StudyError: it holds what JSON cannot say.
    """
    try:
        found = plain(idea)
    except ValueError as error:
        remedy = "This is a bug of what proposed it; report it."
        raise StudyError(f"An idea cannot be remembered: {error}.", remedy) from None
    found["regimes"] = sorted(found["regimes"])
    return hashlib.sha256(compact(found)).hexdigest()


def _seen(path: Path) -> tuple[int, ...]:
    """What changes with the contents of a file."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(key: Any, text: str) -> str:
    return hashlib.sha256(f"{key}\n{text}".encode()).hexdigest()
