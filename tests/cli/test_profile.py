"""`kernel-compass profile`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli.fake_api import Progress, profiling_error

from kernel_compass.cli import progress
from kernel_compass.errors import ProfilingCause
from kernel_compass.records.profile import Regime
from kernel_compass.records.request import ProfileRequest

CODES = {
    "ncu_missing": 8,
    "ncu_too_old": 4,
    "no_permission": 4,
    "driver_mismatch": 4,
    "counters_busy": 4,
    "target_failed": 5,
    "nothing_profiled": 6,
    "timeout": 7,
    "stuck_communication": 7,
    "unsupported_gpu": 4,
    "ncu_failed": 4,
}


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text("print()")
    return "s.py"


def request_of(call, api, *words):
    """What the API was asked for."""
    code, _, err = call("profile", *words)
    assert code == 0, err
    return api.calls[-1][0]


def test_defaults(call, api, script):
    assert request_of(call, api, script) == ProfileRequest((sys.executable, "s.py"))


def test_every_option_arrives(call, api, script, tmp_path):
    request = request_of(
        call,
        api,
        *("--regime", "in_situ", "--regime", "cold", "--regime", "in-situ"),
        *("--kernels", "gemm|softmax", "--nvtx", "decode/"),
        *("--launch-skip", "5", "--launch-count", "7", "--timeout", "9.5"),
        *("--label", "L", "--save", tmp_path / "captures"),
        script,
    )
    assert request == ProfileRequest(
        command=(sys.executable, "s.py"),
        regimes=(Regime.IN_SITU, Regime.COLD),
        kernels="gemm|softmax",
        nvtx="decode/",
        launch_skip=5,
        launch_count=7,
        timeout_s=9.5,
        label="L",
        save_dir=tmp_path / "captures",
    )


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (("s.py", "--", "--label", "x"), ("--label", "x")),
        (("s.py", "--label", "x"), ("--label", "x")),
        (("s.py", "-h"), ("-h",)),
        (("s.py", "--json", "a"), ("--json", "a")),
        (("s.py", "--", "--", "a"), ("--", "a")),
        (("s.py", "a", "--", "b"), ("a", "--", "b")),
        (("--", "s.py", "-x"), ("-x",)),
        (("--label", "L", "s.py", "-x"), ("-x",)),
        (("s.py",), ()),
    ],
)
def test_what_follows_the_script_belongs_to_it(call, api, script, words, arguments):
    assert request_of(call, api, *words).command == (sys.executable, "s.py", *arguments)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (("-m", "pkg.mod"), ()),
        (("-m", "pkg.mod", "--label", "x"), ("--label", "x")),
        (("-m", "pkg.mod", "--", "-x"), ("-x",)),
        (("-m", "pkg.mod", "-m", "other"), ("-m", "other")),
        (("--module", "pkg.mod", "a"), ("a",)),
        (("--module=pkg.mod", "--json"), ("--json",)),
        (("-mpkg.mod", "--json"), ("--json",)),
        (("--label", "-m", "-m", "pkg.mod", "-h"), ("-h",)),
    ],
)
def test_what_follows_the_module_belongs_to_it(call, api, words, arguments):
    expected = (sys.executable, "-m", "pkg.mod", *arguments)
    assert request_of(call, api, *words).command == expected


def test_a_misplaced_option_is_pointed_out(call, script):
    code, _, err = call("profile", script, "--regime=cold")
    assert code == 0
    assert "note: --regime=cold follows s.py and goes to it; ours go before it\n" in err
    assert "note:" not in call("profile", script, "--", "--regime=cold")[2]


def test_how_targets_are_started(call, api, script):
    Path("tool").write_bytes(b"\x7fELF\0")
    Path("tool").chmod(0o755)
    Path("plain").write_text("print(1)\n")
    Path("sheb").write_text("#!/usr/bin/env python3\nprint(1)\n")
    Path("app").mkdir()
    Path("app/__main__.py").write_text("")
    Path("exec.py").write_text("#!/usr/bin/python\n")
    Path("exec.py").chmod(0o755)
    python = sys.executable
    assert request_of(call, api, "tool", "-v").command == ("./tool", "-v")
    assert request_of(call, api, "./tool").command == ("./tool",)
    assert request_of(call, api, "plain").command == (python, "plain")
    assert request_of(call, api, "sheb").command == (python, "sheb")
    assert request_of(call, api, "app").command == (python, "app")
    assert request_of(call, api, "exec.py").command == (python, "exec.py")
    shell = request_of(call, api, "sh", "-c", "true").command
    assert shell[0].endswith("/sh")
    assert shell[1:] == ("-c", "true")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "kernel-compass profile SCRIPT"),
        (("--label", "x"), "kernel-compass profile SCRIPT"),
        (("nowhere.py",), "Name a Python script"),
        (("folder",), "Name a script, or a module"),
        (("binary",), "chmod +x binary"),
        (("shell",), "chmod +x shell"),
        (("--regime", "hot", "s.py"), "Name one of warm, cold, in_situ."),
        (("--regime", "warm=f.csv", "s.py"), "Name one of warm, cold, in_situ."),
        (("--kernels", "(", "s.py"), "Escape special characters"),
        (("--launch-count", "0", "s.py"), "kernel-compass profile --help"),
        (("--launch-skip", "-1", "s.py"), "kernel-compass profile --help"),
        (("--timeout", "0", "s.py"), "kernel-compass profile --help"),
        (("--timeout", "soon", "s.py"), "kernel-compass profile --help"),
        (("--save", "binary", "s.py"), "Name a folder"),
        (("--output", "folder", "s.py"), "Name a file"),
        (("-m",), "kernel-compass --help"),
    ],
)
def test_wrong_usage(call, api, script, words, hint):
    Path("folder").mkdir()
    Path("binary").write_bytes(b"\x7fELF\0")
    Path("shell").write_text("#!/bin/sh\n")
    code, out, err = call("profile", *words)
    assert (code, out, api.calls) == (2, "", [])
    assert hint in err


def test_the_program_speaks_on_standard_error_beside_a_report_on_standard_output(call, script):
    code, out, err = call("profile", "--json", script)
    assert code == 0
    assert json.loads(out)["kernels"]
    assert "the program says hello" in err


def test_the_program_speaks_on_standard_output_beside_a_report_in_a_file(call, script):
    code, out, _ = call("profile", "--output", "r.json", script)
    assert (code, out) == (0, "the program says hello\n")
    assert json.loads(Path("r.json").read_text())["kernels"]


@pytest.mark.parametrize("cause", list(ProfilingCause))
def test_every_cause_has_a_code_and_a_remedy(call, api, script, cause):
    api.failure = profiling_error(cause)
    code, out, err = call("profile", "--json", script)
    assert (code, out) == (CODES[cause], "")
    assert err.endswith(f"error: it was {cause}.\nnext: Do something about it.\n")


def test_progress_is_lines_on_standard_error_without_a_terminal(call, script):
    _, out, err = call("profile", script)
    assert "profiling warm: 3 kernels in 2 s, k_tiny\n" in err
    assert "profiling warm" not in out


def test_progress_lines_are_rare(capfd, monkeypatch):
    clock = iter([0.0, 1.0, 4.9, 5.1, 6.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.shown() as tell:
        for done in range(5):
            tell(Progress(kernels_done=done, kernel_name=None))
    assert capfd.readouterr().err == (
        "profiling warm: 0 kernels in 2 s\nprofiling warm: 3 kernels in 2 s\n"
    )


def test_progress_is_live_on_a_terminal(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.shown() as tell:
        tell(Progress(kernel_name="k<[lambda(T1) (instance 1)], [/b]>"))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "profiling warm" in captured.err or "starting ncu" in captured.err
