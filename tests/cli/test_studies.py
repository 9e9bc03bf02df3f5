"""history, show, export, apply, revert, forget over real ledgers and tables."""

from __future__ import annotations

import json
import sqlite3

import pytest
from optimizer.study_samples import ENVIRONMENT, H200, entry, proposal, study, trial

from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.codec.study_document import decode
from kernel_compass.optimizer import ledger_file
from kernel_compass.optimizer.dispatch_file import merge, read_table
from kernel_compass.optimizer.ledger import Ledger, read_study
from kernel_compass.optimizer.ledger_home import folder_of, new_identifier
from kernel_compass.optimizer.ledger_memory import RejectionMemory
from kernel_compass.records.rejected import Idea
from kernel_compass.records.study import StudyState

WORKLOAD = "bmm 16x1x128x512"


@pytest.fixture
def say(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def record(name, finished=True, steps=("",)):
    """A study with an accepted and a rejected trial, in as many sittings as are named."""
    ledger = Ledger.create(study(name))
    for number, accepted in ((1, True), (2, False)):
        ledger.begin(number, WORKLOAD, proposal(number))
        if len(steps) > number:
            ledger.close()
            ledger = Ledger.resume(folder_of(name))
            ledger.begin(number, WORKLOAD, proposal(number))
        entries = [entry(name, number)] if accepted else []
        ledger.end(trial(number, accepted, proposed=proposal(number)), entries)
    if finished:
        ledger.set_state(StudyState.FINISHED, "all tried")
    ledger.close()


def test_without_studies_history_says_where_it_looked(say, tmp_path):
    code, out, _ = say("history")
    assert code == 0 and str(tmp_path / "home") in out
    assert say("history", "--json") == (0, "[]\n", "")


def test_history_lists_all_and_names_the_damaged_one(say):
    record("first")
    record("second", finished=False)
    folder_of("third").mkdir()
    (folder_of("third") / "ledger.sqlite").write_bytes(b"x" * 5000)
    code, out, _ = say("history")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0 and list(lines) == ["first", "second", "third"]
    assert "finished" in lines["first"] and "2 trials, 1 accepted" in lines["first"]
    assert "best 1.10x at least" in lines["first"]
    assert "interrupted" in lines["second"] and "no SQLite database" in lines["third"]
    found = json.loads(say("history", "--json")[1])
    assert [one["name"] for one in found] == ["first", "second", "third"]
    assert found[0]["accepted"] == [1] and "no SQLite database" in found[2]["problem"]


@pytest.mark.parametrize("name", ["first", "fir", "last"])
def test_show_finds_a_study_by_name_beginning_or_last(say, name):
    record("first")
    code, out, _ = say("show", name)
    assert code == 0 and "first: mla:deepseek-v3 on NVIDIA H200, finished" in out
    assert "cold 1.60x [1.50, 1.70]" in out and "not_faster: 1.20 times at least" in out
    document = decode(say("show", name, "--json")[1])
    assert document.trials == read_study(folder_of("first")).trials


@pytest.mark.parametrize("command", ["show", "export"])
def test_a_study_that_is_not_there_or_damaged_is_an_error(say, command):
    code, out, err = say(command, "nobody")
    assert (code, out) == (ExitCode.STUDY, "") and "no study 'nobody'" in err and "history" in err
    record("one-a")
    record("one-b")
    code, _, err = say(command, "one")
    assert code == ExitCode.STUDY and "2 studies: one-a, one-b" in err
    (folder_of("one-a") / "ledger.sqlite").write_bytes(b"")
    code, _, err = say(command, "one-a")
    assert code == ExitCode.STUDY and "next: " in err


def test_two_runs_of_one_recording_export_the_same_bytes(say, tmp_path):
    record("first")
    record("second", steps=("", "", ""))  # ended twice in between
    assert read_study(folder_of("second")).interruptions
    first, second = say("export", "first")[1], say("export", "second")[1]
    assert first == second and "first" not in first
    code, out, _ = say("export", "first", "--output", tmp_path / "deep" / "a.json")
    assert (code, out) == (0, "")
    assert (tmp_path / "deep" / "a.json").read_text() == first


def test_a_revert_of_nothing_says_what_there_is_and_how_to_look(say, tmp_path):
    table, none = tmp_path / "compass.json", tmp_path / "none.json"
    code, _, err = say("revert", "nosuch", "--table", table)
    assert code == ExitCode.STUDY
    assert f"There is no dispatch table {table}" in err
    assert "No study 'nosuch' is recorded" in err and "nor any other" in err
    for name in ("first", "second"):
        record(name)
    say("apply", "first", "--table", table)
    code, _, err = say("revert", "nosuch", "--table", table)
    assert code == ExitCode.STUDY
    assert f"Nothing in {table} is of nosuch: it holds first:1." in err
    assert "those there, the latest first: second, first" in err
    code, _, err = say("revert", "second", "--table", table)
    assert code == ExitCode.STUDY
    assert "it holds first:1. The study second is recorded here; it was never put there" in err
    code, _, err = say("revert", "first", "--table", none)
    assert code == ExitCode.STUDY and f"There is no dispatch table {none}" in err
    assert "--table FILE" in err
    for wrong, place in (("nosuch", table), ("first", none), ("first:9", table)):
        _, _, err = say("revert", wrong, "--table", place)
        (remedy,) = [line for line in err.splitlines() if line.startswith("next: ")]
        assert "`kernel-compass history`" in remedy
    assert say("history")[0] == ExitCode.OK


def test_revert_restores_the_table_to_the_byte(say, tmp_path):
    record("first")
    table = tmp_path / "compass.json"
    other = [entry("other", 3, 1.01), entry("other", 4, sizes=(1, 2, 3))]
    merge(table, other, {"other": ENVIRONMENT})
    before = table.read_bytes()
    merge(table, read_study(folder_of("first")).entries, {"first": ENVIRONMENT})
    assert table.read_bytes() != before
    code, out, _ = say("revert", "first:1", "--table", table)
    assert code == 0 and "first:1" in out and table.read_bytes() == before
    code, _, err = say("revert", "first", "--table", table)
    assert code == ExitCode.STUDY and "Nothing" in err and "other:3, other:4" in err
    code, out, _ = say("revert", "oth", "--table", table, "--json")
    assert code == 0 and len(json.loads(out)["reverted"]) == 2 and not table.exists()
    code, _, err = say("revert", "other", "--table", table)
    assert code == ExitCode.STUDY and "no dispatch table" in err


def test_apply_puts_a_study_into_a_table_and_leaves_the_study(say, tmp_path):
    record("first")
    table, folder = tmp_path / "compass.json", folder_of("first")
    before = read_study(folder)
    code, out, _ = say("apply", "fir", "--table", table)
    assert code == 0 and "first:1" in out
    assert out.splitlines()[-1] == f"Take it back: kernel-compass revert first --table {table}"
    assert read_table(table).contributions == before.entries
    assert read_study(folder) == before
    merge(table, [entry("other", 4, 9.0)], {"other": ENVIRONMENT})
    code, out, _ = say("apply", "first", "--table", table)
    assert code == 0 and "outdone by another" in out
    code, out, _ = say("apply", "first", "--table", table, "--json")
    assert code == 0 and len(json.loads(out)["applied"]) == len(before.entries)
    code, _, err = say("apply", "none", "--table", table)
    assert code == ExitCode.STUDY and "no study" in err


def test_a_study_that_accepted_nothing_is_no_entry(say, tmp_path):
    with Ledger.create(study("empty")):
        pass
    code, _, err = say("apply", "empty", "--table", tmp_path / "compass.json")
    assert code == ExitCode.STUDY and "accepted nothing" in err
    assert not (tmp_path / "compass.json").exists()


@pytest.mark.parametrize("wrong", ["", ":", "a:", "a:b", ":1", "a:1:2", "a:-1", "a:" + "9" * 99])
def test_what_is_no_reference_is_wrong_usage(say, tmp_path, wrong):
    code, _, err = say("revert", wrong, "--table", tmp_path / "compass.json")
    assert code == ExitCode.USAGE and "STUDY:TRIAL" in err


def test_what_was_rejected_is_listed_and_forgotten(say):
    assert "Nothing is remembered" in say("history", "--rejected")[1]
    for workload in ("w1", "w2"):
        regimes = study().request.regimes
        idea = Idea(proposal().candidate, workload, H200, regimes, {"torch": "2.9"})
        RejectionMemory().remember(idea, trial(), "first")
    assert len(say("history", "--rejected")[1].splitlines()) == 2
    assert len(json.loads(say("history", "--rejected", "--json")[1])) == 2
    assert say("forget")[0] == ExitCode.USAGE
    assert say("forget", "--workload", "w1")[1] == "Forgotten: 1 rejected idea.\n"
    assert json.loads(say("forget", "--all", "--json")[1]) == {"forgotten": 1}


def test_new_names_are_names_and_differ():
    names = {new_identifier(target) for target in ["mla:deepseek-v3", "/a/Ü b/x.py", "--"] * 5}
    assert len(names) == 15 and all(folder_of(one) for one in names)


def test_a_folder_that_is_made_for_an_export_is_said(say, tmp_path):
    record("first")
    output = tmp_path / "new" / "below" / "first.json"
    code, _, err = say("export", "first", "-o", output)
    assert code == ExitCode.OK and f"Created the folder {output.parent}" in err
    assert output.is_file()
    code, _, err = say("export", "first", "-o", output)
    assert code == ExitCode.OK and "Created" not in err


def remedy_in(err):
    (found,) = [line for line in err.splitlines() if line.startswith("next: ")]
    return found


@pytest.mark.parametrize("door", [("show",), ("export",), ("apply",), ("optimize", "--resume")])
def test_a_ledger_of_an_older_schema_is_named_as_one(say, monkeypatch, door):
    record("first")
    path = folder_of("first") / "ledger.sqlite"
    before = path.read_bytes()
    monkeypatch.setattr(ledger_file, "VERSION", 3)
    monkeypatch.setattr(ledger_file, "MIGRATIONS", {2: lambda _: None})
    code, _, err = say(*door, "first")
    assert code == ExitCode.STUDY
    assert "is of an older schema: 'kernel-compass/ledger/1'" in err
    assert "reads kernel-compass/ledger/3" in err
    assert "`kernel-compass export`" in remedy_in(err) and "damaged" not in err
    assert path.read_bytes() == before
    code, out, _ = say("history")
    assert code == ExitCode.OK and "older schema" in out


def test_rows_of_an_earlier_form_are_of_another_version_and_not_damage(say):
    record("first")
    path = folder_of("first") / "ledger.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    (document,) = connection.execute("SELECT document FROM log WHERE sequence = 1").fetchone()
    older = json.loads(document)
    older["environment"]["kernel_compass"] = "0.0.1"
    older["objective"] = older.pop("request")
    at = "2026-01-01T00:00:00.000+00:00"
    first = ledger_file.chained("", 1, "study", "1", json.dumps(older), at)
    path.unlink()
    connection.close()
    ledger_file.build(path, first)
    code, _, err = say("show", "first")
    assert code == ExitCode.STUDY
    assert "of the schema kernel-compass/ledger/1, but kernel-compass 0.0.1 wrote rows" in err
    assert "objective" in err or "request" in err
    assert "start the study again" in remedy_in(err) and "damaged" not in err


TABLE_DOORS = [
    ("run", "--with", "{table}", "{script}"),
    ("patch", "{script}", "--with", "{table}", "--diff"),
    ("revert", "first", "--table", "{table}"),
    ("apply", "first", "--table", "{table}"),
]


@pytest.mark.parametrize("door", TABLE_DOORS, ids=lambda words: words[0])
def test_a_table_of_an_older_schema_is_named_as_one(say, tmp_path, door):
    record("first")
    script, table = tmp_path / "script.py", tmp_path / "compass.json"
    script.write_text("print()\n")
    say("apply", "first", "--table", table)
    good = json.loads(table.read_text())
    assert good["schema"] == "kernel-compass/dispatch-table/1"
    early = {**good, "entries": [{k: v for k, v in one.items() if k != "files"}
                                 for one in good["entries"]]}  # fmt: skip
    words = [word.format(table=table, script=script) for word in door]
    for content, said in (
        (
            {**good, "schema": "kernel-compass/dispatch-table/0"},
            "is of an older schema: 'kernel-compass/dispatch-table/0', and this kernel-compass "
            "reads kernel-compass/dispatch-table/1 to /2.",
        ),
        (
            early,
            "is not as its schema kernel-compass/dispatch-table/1 has it (read are "
            "kernel-compass/dispatch-table/1 to /2): Object missing required field `files`",
        ),
    ):
        table.write_text(json.dumps(content))
        code, _, err = say(*words)
        assert code == ExitCode.STUDY
        assert said in err
        assert "`kernel-compass apply STUDY --table FILE`" in remedy_in(err)
        assert json.loads(table.read_text()) == content
