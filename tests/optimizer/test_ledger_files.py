"""Ledgers that are damaged, old, new, foreign, half-written or read-only: a clear error, or
migrated; the file stays as it was."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3

import pytest
from optimizer.study_samples import entry, proposal, study, trial

from kernel_compass.errors import StudyError
from kernel_compass.optimizer import ledger_file
from kernel_compass.optimizer.ledger import Ledger, read_study
from kernel_compass.records.study import StudyState, Tell

FLIPS = 120
WORKLOAD = "bmm 16x1x128x512"


@pytest.fixture
def written(tmp_path):
    """The folder of a study with some trials, and what it says."""
    folder = tmp_path / "study"
    with Ledger.create(study(), folder) as ledger:
        for number in range(1, 13):
            ledger.begin(number, WORKLOAD, proposal(number))
            accepted = number % 4 == 0
            entries = [entry(trial=number)] if accepted else []
            ended = trial(number, accepted, proposed=proposal(number))
            ledger.end(ended, entries, [Tell("s", number, 1.0)])
    return folder, read_study(folder)


def refused(folder, match=None):
    """Reading and resuming fail alike, and nothing changes."""
    path = folder / "ledger.sqlite"
    before = path.read_bytes()
    for door in (read_study, Ledger.resume):
        with pytest.raises(StudyError, match=match) as error:
            door(folder)
        assert error.value.remedy
    assert path.read_bytes() == before
    with pytest.raises(StudyError, match="already"):
        Ledger.create(study(), folder)
    assert path.read_bytes() == before


def test_random_bytes_are_found_or_harmless(written):
    folder, said = written
    path, chance = folder / "ledger.sqlite", random.Random(3)
    whole, found = path.read_bytes(), 0
    for _ in range(FLIPS):
        data = bytearray(whole)
        start = chance.randrange(len(data))
        for place in range(start, min(start + chance.choice((1, 4, 64)), len(data))):
            data[place] = chance.randrange(256)
        path.write_bytes(data)
        try:
            assert read_study(folder) == said
        except StudyError as error:
            assert error.remedy
            found += 1
        assert path.read_bytes() == data
    assert found > FLIPS // 3


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_refused(written, share):
    folder, _ = written
    path = folder / "ledger.sqlite"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    refused(folder)


def test_a_zeroed_page_is_refused_whichever_it_is(written):
    folder, said = written
    path = folder / "ledger.sqlite"
    whole = path.read_bytes()
    for page in range(len(whole) // 4096):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        refused(folder)
    path.write_bytes(whole)
    assert read_study(folder) == said


def test_a_log_that_was_cut_gives_an_earlier_state(written):
    """SQLite drops what the log does not hold whole; the chain of digests stays sound."""
    folder, said = written
    with Ledger.resume(folder) as ledger:
        ledger.begin(13, WORKLOAD, proposal(13))
        ledger.end(trial(13, proposed=proposal(13)))
        copy = folder.parent / "copy"
        shutil.copytree(folder, copy)  # as after a kill: the log is beside the file
    log = copy / "ledger.sqlite-wal"
    assert len(read_study(copy).trials) == 13
    log.write_bytes(log.read_bytes()[:-5000])
    found = read_study(copy)
    assert found.trials[:12] == said.trials


def test_a_row_that_was_changed_by_sql_is_found(written):
    folder, _ = written
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        with pytest.raises(sqlite3.IntegrityError, match="only ever added to"):
            connection.execute("UPDATE log SET document = '{}'")
        with pytest.raises(sqlite3.IntegrityError, match="only ever added to"):
            connection.execute("DELETE FROM log")
        connection.execute("DROP TRIGGER log_is_not_changed")
        connection.execute("UPDATE log SET document = replace(document, '1.6', '2.6')")
    connection.close()
    refused(folder, "was changed after it was written")


def test_a_newer_version_is_refused_and_named(written):
    folder, _ = written
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    refused(folder, "newer kernel-compass.*ledger/7")


def test_an_old_version_is_read_from_memory_and_migrated_on_a_copy(written, monkeypatch):
    """What is now version 1 stands for the old one: the next version renames a kind of rows."""
    folder, said = written
    path = folder / "ledger.sqlite"
    before = path.read_bytes()
    migrated = []

    def migration(connection):
        migrated.append(True)
        connection.execute("CREATE TABLE added_by_version_2 (x)")

    monkeypatch.setattr(ledger_file, "VERSION", 2)
    monkeypatch.setattr(ledger_file, "MIGRATIONS", {1: migration})
    assert read_study(folder) == said and migrated
    assert path.read_bytes() == before
    with Ledger.resume(folder) as ledger:
        assert ledger.recorded.trials == said.trials
    assert (folder / "ledger-v1.sqlite").read_bytes() == before
    found = sqlite3.connect(path)
    assert found.execute("PRAGMA user_version").fetchone() == (2,)
    found.close()
    assert read_study(folder).trials == said.trials


def test_a_migration_that_fails_leaves_the_old_file(written, monkeypatch):
    folder, said = written
    monkeypatch.setattr(ledger_file, "VERSION", 2)
    broken = {1: lambda connection: connection.execute("SELECT * FROM nowhere")}
    monkeypatch.setattr(ledger_file, "MIGRATIONS", broken)
    refused(folder, "nowhere")
    monkeypatch.undo()
    assert read_study(folder) == said


def foreign_database(path, application=None):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, message TEXT)")
        connection.execute("INSERT INTO log VALUES (1, 'not yours')")
        if application is not None:
            connection.execute(f"PRAGMA application_id = {application}")
            connection.execute("PRAGMA user_version = 1")
    connection.close()


@pytest.mark.parametrize("application", [None, 252006675, ledger_file.APPLICATION])
def test_the_database_of_another_program_is_refused(tmp_path, application):
    foreign_database(tmp_path / "ledger.sqlite", application)
    refused(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\0" * 8192, os.urandom(5000), b"SQLite format 3\0"]
)
def test_what_is_no_database_is_refused(tmp_path, content):
    (tmp_path / "ledger.sqlite").write_bytes(content)
    refused(tmp_path)


def test_a_folder_without_a_ledger_says_so(tmp_path):
    for door in (read_study, Ledger.resume):
        with pytest.raises(StudyError, match="before it began"):
            door(tmp_path)
        with pytest.raises(StudyError, match="no study"):
            door(tmp_path / "nowhere")


def test_half_a_ledger_of_a_killed_run_is_swept(tmp_path):
    (tmp_path / "ledger.sqlite.new").write_bytes(b"half")
    (tmp_path / "ledger.sqlite.new-journal").write_bytes(b"half")
    with Ledger.create(study(), tmp_path) as ledger:
        ledger.set_state(StudyState.FINISHED)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ledger.sqlite", "writer.lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become a user who may only read")
def test_a_read_only_study_is_read_and_not_written(written):
    folder, said = written
    for one in folder.parent.parents:
        if one.stat().st_mode & 0o005 != 0o005 and str(one).startswith("/tmp/pytest"):
            one.chmod(0o755)
    folder.parent.chmod(0o755)
    folder.chmod(0o555)
    for one in folder.iterdir():
        one.chmod(0o444)
    pid = os.fork()
    if pid == 0:
        try:
            os.setuid(65534)
            assert read_study(folder) == said
            with pytest.raises(StudyError, match=r"cannot be written|read-only"):
                Ledger.resume(folder)
            with pytest.raises(StudyError, match="cannot be written"):
                Ledger.create(study(), folder.parent / "new")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
