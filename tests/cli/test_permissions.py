"""What may not be read or written is named with the command that shows who may."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_compass.cli.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "benchmarks/results/cpu/steps/small_model.recording.json.gz"
RUN = """
import contextlib, io, json, os, sys
from kernel_compass.cli.main import main
found = []
for home, words in json.load(sys.stdin):
    os.environ["KERNEL_COMPASS_HOME"] = home
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    out.flush()
    found.append((code, out.buffer.getvalue().decode(), err.getvalue()))
print(json.dumps(found))
"""
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def as_others() -> None:
    """In the child: root may read and write what its permissions say, as anybody else."""
    for one in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if os.geteuid() == 0 and LIBC.prctl(PR_CAPBSET_DROP, one, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "root may do anything here")


LIBC = ctypes.CDLL(None, use_errno=True)


def run(folder: Path, *asked: tuple[str, list[str]]) -> list[tuple[int, str, str]]:
    """Exit code, standard output and error of each command line, with its home."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            input=json.dumps([(str(folder / home), words) for home, words in asked]),
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder)},
            preexec_fn=as_others,
        )
    except subprocess.SubprocessError:
        pytest.skip("root of a container that may not give up its rights")
    assert done.returncode == 0, done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files and folders that may not be read, entered or written."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("home", "shut", "fixed", "seen"):
        (folder / name).mkdir()
    for name in ("problem.py", "secret.py", "shut/step.py"):
        (folder / name).write_text("print('hello')\n")
    shutil.copy(RECORDING, folder / "study.gz")
    shutil.copy(RECORDING, folder / "shut" / "study.gz")
    written = ["optimize", "--captured", "study.gz", "--yes", "--quiet", "--table"]
    tables = ("fixed/table.json", "shut/table.json", "home/table.json")
    for home, table in zip(("home", "seen", "fixed"), tables, strict=True):
        ((code, _, err),) = run(folder, (home, [*written, table]))
        assert code == ExitCode.OK, err
    (study,) = (folder / "seen" / "studies").iterdir()
    (folder / "study").write_text(study.name)
    study.chmod(0o000)
    (folder / "secret.py").chmod(0o000)
    (folder / "shut").chmod(0o000)
    (folder / "fixed").chmod(0o555)
    yield folder
    for one in (folder / "shut", folder / "fixed", study):
        one.chmod(0o755)


VALIDATE = ["validate", "x", "--device", "cpu", "--yes", "--problem"]
CASES = {
    "a problem": ("home", [*VALIDATE, "secret.py"], "secret.py", ExitCode.USAGE),
    "its folder": ("home", [*VALIDATE, "shut/problem.py"], "shut", ExitCode.USAGE),
    "to optimize": ("home", ["optimize", "secret.py", "--yes"], "secret.py", ExitCode.USAGE),
    "a script": ("home", ["capture", "--script", "shut/step.py"], "shut", ExitCode.USAGE),
    "its step": ("home", ["optimize", "--script", "shut/step.py"], "shut", ExitCode.USAGE),
    "an entry": ("home", ["capture", "--entry", "secret.py:f", "--yes"], "secret.py", 2),
    "a capture": ("home", ["optimize", "--captured", "shut/study.gz"], "shut", ExitCode.USAGE),
    "a trace": ("home", ["capture", "--trace", "shut/study.gz"], "shut", ExitCode.CAPTURE),
    "a run's table": (
        "home",
        ["run", "--with", "shut/table.json", "problem.py"],
        "shut",
        ExitCode.STUDY,
    ),
    "a run's script": (
        "home",
        ["run", "--with", "home/table.json", "shut/step.py"],
        "shut",
        ExitCode.USAGE,
    ),
    "a revert": ("home", ["revert", "x", "--table", "shut/table.json"], "shut", ExitCode.STUDY),
    "a table": (
        "home",
        ["optimize", "--captured", "study.gz", "--table", "shut/new.json"],
        "shut",
        ExitCode.USAGE,
    ),
    "a fixed table": (
        "home",
        ["optimize", "--captured", "study.gz", "--table", "fixed/new.json"],
        "fixed",
        ExitCode.USAGE,
    ),
    "to apply": ("home", ["apply", "last", "--table", "fixed/table.json"], "fixed", ExitCode.STUDY),
    "a report": (
        "home",
        ["advise", "bmm", "1x2x64x64", "--gpu", "h200", "-o", "shut/x.md"],
        "shut",
        2,
    ),
    "diagnose": ("home", ["diagnose", "shut/x.csv"], "shut", ExitCode.USAGE),
    "a fixed home": ("fixed/new", ["optimize", "--captured", "study.gz"], "fixed", ExitCode.STUDY),
    "a shut home": ("shut", ["history"], "shut", ExitCode.STUDY),
    "to forget": ("shut", ["forget", "--all"], "shut", ExitCode.STUDY),
    "to agree": ("fixed/new", [*VALIDATE, "problem.py"], "fixed", ExitCode.STUDY),
    "to have agreed": ("shut", [*VALIDATE, "problem.py"], "shut", ExitCode.STUDY),
    "a shut study": ("seen", ["show", "{study}"], "seen/studies/{study}", ExitCode.STUDY),
    "the last study": ("seen", ["show", "last"], "seen/studies/{study}", ExitCode.STUDY),
    "to resume": ("seen", ["optimize", "--resume", "{study}"], "seen/studies/{study}", 11),
}


@pytest.fixture(scope="module")
def answers(place: Path) -> dict[str, tuple[int, str, str]]:
    study = (place / "study").read_text()
    asked = [
        (home, [word.replace("{study}", study) for word in words])
        for home, words, _, _ in CASES.values()
    ]
    return dict(zip(CASES, run(place, *asked), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_who_may_is_shown_by_the_command_that_is_named(place, answers, name):
    _, _, obstacle, expected = CASES[name]
    code, _, err = answers[name]
    assert code == expected, err
    assert "Traceback" not in err
    (remedy,) = re.findall(r"^next: .*$", err, re.M)
    (command,) = re.findall(r"`(ls -ld .*?)`", remedy)
    shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, command
    known = place / obstacle.replace("{study}", (place / "study").read_text())
    assert command.split()[-1] == str(known)
    if expected == ExitCode.STUDY and "table" not in " ".join(CASES[name][1]):
        assert "export KERNEL_COMPASS_HOME=" in remedy


def test_a_study_that_may_not_be_entered_is_listed_and_not_hidden(place):
    ((code, out, _),) = run(place, ("seen", ["history"]))
    assert code == ExitCode.OK
    assert (place / "study").read_text() in out
    assert "unusable" in out
    assert "Permission denied" in out
