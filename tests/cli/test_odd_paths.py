"""Paths that are no files: said at once, with what is needed; no pipe or device is waited for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.cli.main import main
from kernel_compass.cli.output import write
from kernel_compass.errors import UsageError

HUGE_BYTES = 1 << 36


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """A pipe that nothing writes or reads, a file larger than memory, a folder, bytes."""
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with open("huge", "wb") as file:  # noqa: PTH123
        file.truncate(HUGE_BYTES)
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes").write_bytes(os.urandom(300))
    (tmp_path / "piped").mkdir()
    os.mkfifo("piped/ledger.sqlite")
    return tmp_path


COMMANDS = (["show"], ["export"], ["replay"], ["apply"], ["optimize", "--resume"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc", "is none of a study"),
        ("./folder", "is none of a study: it has no ledger.sqlite"),
        ("folder", "written as ./folder"),
        ("/dev/zero", "no folder of one"),
        ("./pipe", "no folder of one"),
        ("./piped", "named pipe"),
        ("recorded:/dev/zero", "no folder of one"),
        ("bytes", "no study 'bytes'"),
        ("", "no study ''"),
        ("x" * 5000, "no study 'xxx"),
        ("./" + "x" * 5000, "no study './xxx"),
        ("a\0b", "no study"),
    ],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)
def test_what_is_no_study(odd, capsys, command, name, said):
    assert main([*command, name]) == ExitCode.STUDY
    told = capsys.readouterr().err
    assert said in told
    assert "next:" in told


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/dev/zero", "no regular file"),
        ("pipe", "no regular file"),
        ("huge", "more than 16 MiB"),
        ("folder", "Is a directory"),
        ("none", "no recording"),
    ],
)
def test_what_is_no_recording(odd, capsys, file, said):
    words = ["optimize", "bmm:2x4x64x64", "--device", f"recorded:{file}"]
    assert main(words) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_a_pipe_that_nothing_reads_is_not_waited_for(odd):
    with pytest.raises(UsageError, match="a pipe that nothing reads"):
        write(b"report", odd / "pipe")
    data = os.urandom(1 << 20)
    with (odd / "read").open("wb") as read:
        reader = subprocess.Popen(["cat", "pipe"], stdout=read)
    try:
        for _ in range(1000):
            try:
                write(data, odd / "pipe")
                break
            except UsageError:  # it has not opened it yet
                subprocess.run([sys.executable, "-c", ""], check=True)
        assert reader.wait(60) == 0
        assert (odd / "read").read_bytes() == data
    finally:
        reader.kill()


def test_a_device_is_written_to_and_a_full_one_is_said(odd):
    write(b"report", odd / "/dev/null")
    with pytest.raises(UsageError, match="No space left"):
        write(b"report", odd / "/dev/full")


def test_a_recording_goes_into_a_file(odd, capsys):
    (odd / "step.py").write_text("")
    words = ["optimize", "--script", "step.py", "--yes", "--record", "pipe"]
    assert main(words) == ExitCode.USAGE
    assert "--record pipe is no regular file" in capsys.readouterr().err
