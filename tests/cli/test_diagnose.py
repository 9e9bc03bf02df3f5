"""`kernel-compass diagnose`."""

from __future__ import annotations

import csv
import json
import stat
from io import StringIO
from pathlib import Path

import pytest
from report import samples

from kernel_compass.errors import MissingDependency
from kernel_compass.records.profile import Regime
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render


def test_the_report_and_nothing_else_goes_to_standard_output(call, captures):
    code, out, err = call("diagnose", captures[0])
    assert (code, err) == (0, "")
    assert out == render(samples.decode(), Format.TERMINAL, 100)


@pytest.mark.parametrize(
    "words", [("--json",), ("--format", "json"), ("--json", "--format", "json")]
)
def test_json_of_one_file_is_an_object(call, captures, words):
    code, out, err = call("diagnose", captures[0], *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["schema"] == "kernel-compass/diagnosis/1"


def test_json_of_several_files_is_an_array(call, captures):
    _, out, _ = call("diagnose", *captures[:2], "--json", "--label", "mine")
    assert [item["label"] for item in json.loads(out)] == ["mine", "mine"]


def test_csv_of_several_files_is_one_table(call, captures):
    _, out, _ = call("diagnose", *captures[:2], "--format", "csv")
    assert len(list(csv.DictReader(StringIO(out)))) == 12


def test_files_by_regime_are_joined(call, api, captures):
    good, other, _ = captures
    code, _, _ = call("diagnose", "--regime", f"warm={good}", "--regime", f"in-situ={other}")
    assert code == 0
    assert api.calls == [([], {Regime.WARM: good, Regime.IN_SITU: other}, None)]


def test_joined_and_plain_files_together(call, captures):
    good, other, _ = captures
    _, out, _ = call(
        "diagnose", good, "--regime", f"warm={good}", "--regime", f"cold={other}", "--json"
    )
    one, joined = json.loads(out)
    assert "regimes" not in one["kernels"][0]
    assert "regimes" in joined["kernels"][0]


def test_a_damaged_file_does_not_hide_the_others(call, captures):
    good, other, damaged = captures
    code, out, err = call("diagnose", good, damaged, other, "--json")
    assert code == 3
    assert len(json.loads(out)) == 2
    assert err == "error: damaged.csv ends inside a row.\nnext: Record it again.\n"


def test_one_good_file_of_two_is_still_an_array(call, captures):
    code, out, _ = call("diagnose", captures[0], captures[2], "--json")
    assert code == 3
    assert len(json.loads(out)) == 1


def test_a_damaged_file_alone_writes_nothing(call, captures, tmp_path):
    output = tmp_path / "report.json"
    code, out, err = call("diagnose", captures[2], "--output", output)
    assert (code, out, output.exists()) == (3, "", False)
    assert err.startswith("error: ")


def test_a_missing_file(call, api, tmp_path):
    code, out, err = call("diagnose", tmp_path / "none.csv")
    assert (code, out, api.calls) == (3, "", [])
    assert "none.csv cannot be read: No such file or directory." in err


def test_a_missing_package_has_its_own_code(call, api, captures):
    api.failure = MissingDependency("No reader.", "pip install 'kernel-compass[report]'")
    code, _, err = call("diagnose", captures[0])
    assert code == 8
    assert "next: pip install" in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "kernel-compass diagnose FILE..."),
        (("--regime", "warm"), "Write --regime warm=FILE."),
        (("--regime", "in-situ="), "Write --regime in_situ=FILE."),
        (("--regime", "hot=x.csv"), "Name one of warm, cold, in_situ."),
        (("--regime", "unknown=x.csv"), "Name one of warm, cold, in_situ."),
        (("--regime", "warm=a", "--regime", "warm=b"), "Join one capture a regime"),
        (("x.csv", "--json", "--format", "csv"), "Give one of them."),
        (("x.csv", "--format", "html"), "kernel-compass diagnose --help"),
        (("x.csv", "--nonsense"), "kernel-compass diagnose --help"),
    ],
)
def test_wrong_usage(call, words, hint):
    code, out, err = call("diagnose", *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert hint in err


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.json", "{"),
        ("r.md", "## "),
        ("r.csv", "source,"),
        ("r.txt", "decode step"),
        ("r", "decode"),
    ],
)
def test_the_format_follows_the_suffix(call, captures, tmp_path, name, start):
    code, out, err = call("diagnose", captures[0], "-o", tmp_path / name)
    assert (code, out, err) == (0, "", "")
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_missing_folders_are_created(call, captures, tmp_path):
    output = tmp_path / "a" / "b" / "r.json"
    assert call("diagnose", captures[0], "--output", output)[0] == 0
    assert json.loads(output.read_text())


def test_an_output_is_replaced_whole_and_keeps_its_mode(call, captures, tmp_path):
    output = tmp_path / "r.txt"
    output.write_text("old" * 10_000)
    output.chmod(0o640)
    link = tmp_path / "link.txt"
    link.symlink_to(output)
    assert call("diagnose", captures[0], "--output", link)[0] == 0
    assert output.read_text(encoding="utf-8") == render(samples.decode(), Format.TERMINAL, 100)
    assert link.is_symlink()
    assert stat.S_IMODE(output.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_new_output_has_the_usual_mode(call, captures, tmp_path):
    call("diagnose", captures[0], "--output", tmp_path / "r.txt")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "r.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failed_write_leaves_the_old_file(call, captures, tmp_path, monkeypatch):
    output = tmp_path / "r.txt"
    output.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = call("diagnose", captures[0], "--output", output)
    assert code == 2
    assert "No space left on device" in err
    assert output.read_text() == "old"
    assert len([p for p in tmp_path.iterdir() if "r.txt" in p.name]) == 1


def test_a_folder_as_output_is_refused_before_any_work(call, api, captures, tmp_path):
    code, out, err = call("diagnose", captures[0], "--output", tmp_path)
    assert (code, out, api.calls) == (2, "", [])
    assert err == (
        f"error: --output {tmp_path} is a folder.\n"
        f"next: Name a file, for example --output {tmp_path / 'report.json'}.\n"
    )


def test_a_file_in_the_way_of_a_folder(call, captures, tmp_path):
    code, _, err = call("diagnose", captures[0], "--output", captures[1] / "r.json")
    assert code == 2
    assert "cannot be written" in err


def test_a_device_is_written_to(call, captures):
    assert call("diagnose", captures[0], "--output", "/dev/null") == (0, "", "")
    assert Path("/dev/null").is_char_device()
