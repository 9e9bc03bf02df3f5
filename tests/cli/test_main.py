"""The command line as a whole: errors, exit codes, colours, pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import jsonschema
import pytest

from kernel_compass import __version__
from kernel_compass.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
from kernel_compass.cli.output import color_of, width_of
from kernel_compass.errors import KernelCompassError, UsageError

ROOT = Path(__file__).parents[2]
FAKE = str(Path(__file__).with_name("fake_api.py"))


def process(*words, **environment):
    """The command line in a process of its own, over the stand-in API."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **environment}
    return subprocess.run(
        [sys.executable, FAKE, *map(str, words)], capture_output=True, env=env, check=False
    )


def test_version(call):
    assert call("--version") == (0, f"kernel-compass {__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help(call, words):
    code, out, err = call(*words)
    assert (code, err) == (0, "")
    assert "profile" in out
    assert "diagnose" in out


@pytest.mark.parametrize("command", [(), ("profile",), ("diagnose",), ("doctor",)])
def test_every_help_lists_the_exit_codes(call, command):
    _, out, _ = call(*command, "--help")
    for code, meaning in MEANINGS.items():
        assert f"{code.value:>3}  {meaning}" in out


def test_every_code_has_a_meaning():
    assert set(MEANINGS) == set(ExitCode)


def test_profile_help_says_where_the_program_speaks(call):
    out = " ".join(call("profile", "--help")[1].split())
    assert "passed through: to standard error while the report goes to standard output" in out
    assert "missing folders are created" in out


@pytest.mark.parametrize("words", [("x" * 10**6,), ("diagnose", "x" * 10**6)])
def test_messages_do_not_repeat_megabytes(call, words):
    code, _, err = call(*words)
    assert code == 2
    assert len(err) < 10_000


def test_an_unknown_command(call):
    code, out, err = call("diagnoze", "x")
    assert (code, out) == (2, "")
    assert "next: kernel-compass --help" in err


def test_a_bug_shows_no_traceback(call, api, captures):
    api.failure = RuntimeError("boom")
    code, out, err = call("diagnose", captures[0])
    assert (code, out) == (1, "")
    assert err.startswith("error: unexpected RuntimeError: boom\nnext: ")
    assert "Traceback" not in err


def test_a_bug_shows_its_traceback_when_asked(call, api, captures, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_DEBUG", "1")
    api.failure = RuntimeError("boom")
    code, _, err = call("diagnose", captures[0])
    assert code == 1
    assert "Traceback" in err


def test_ctrl_c(call, api, captures):
    api.failure = KeyboardInterrupt()
    code, out, _ = call("diagnose", captures[0])
    assert (code, out) == (130, "")


def test_an_error_without_a_remedy(call, api, captures):
    api.failure = UsageError("No.")
    assert call("diagnose", captures[0]) == (2, "", "error: No.\n")


def test_an_error_of_no_kind_is_a_bug():
    assert exit_code_of(KernelCompassError("?")) == ExitCode.BUG


def test_doctor(call):
    code, out, err = call("doctor")
    assert (code, err) == (0, "")
    assert out.split("\n")[0] == "ok       GPU     NVIDIA H200"
    assert "missing  ncu     not on PATH" in out
    assert "cost: no live profiling" in out
    assert "next: install Nsight Compute" in out


def test_doctor_json(call):
    code, out, _ = call("doctor", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["schema"] == "kernel-compass/doctor/1"
    assert document["checks"][1] == {
        "name": "ncu",
        "status": "missing",
        "found": "not on PATH",
        "cost": "no live profiling",
        "remedy": "install Nsight Compute",
    }


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"CLICOLOR": "0"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour(environ, terminal, expected):
    assert color_of(Terminal() if terminal else StringIO(), environ) is expected


def test_a_file_or_a_closed_stream_has_no_colour():
    closed = StringIO()
    closed.close()
    assert not color_of(None, {})
    assert not color_of(closed, {})


def test_width(monkeypatch):
    assert width_of(StringIO()) == 100
    monkeypatch.setenv("COLUMNS", "132")
    assert width_of(StringIO()) == width_of(Terminal()) == 132
    monkeypatch.setenv("COLUMNS", "wide")
    assert width_of(StringIO()) == 100


def test_a_process_writes_data_as_utf8_whatever_the_locale(captures):
    result = process("diagnose", captures[0], "--json", "--label", "λ", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout.decode("utf-8"))["label"] == "λ"


def test_a_picture_fits_the_encoding_of_the_terminal(captures):
    result = process("diagnose", captures[0], PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert result.stdout.isascii()


def test_columns_and_colour_of_a_process(captures):
    result = process("diagnose", captures[0], COLUMNS="80", FORCE_COLOR="1")
    assert b"\x1b[" in result.stdout
    plain = process("diagnose", captures[0], COLUMNS="80")
    golden = ROOT / "tests" / "golden" / "terminal_decode_80.txt"
    assert plain.stdout.decode() == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [("--json",), ()])
def test_a_reader_that_goes_away(captures, words):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    read, write = os.pipe()
    os.close(read)
    try:
        result = subprocess.run(
            [sys.executable, FAKE, "diagnose", *map(str, captures[:2]), *words],
            stdout=write,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
            check=False,
        )
    finally:
        os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


def test_json_of_the_command_line_keeps_the_schema(captures):
    from kernel_compass.codec.diagnosis_json import schema

    result = process("diagnose", "--regime", f"warm={captures[0]}", "--json")
    jsonschema.Draft202012Validator(schema()).validate(json.loads(result.stdout))
