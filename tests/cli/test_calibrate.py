"""`kernel-compass calibrate`: shown without a GPU, measured with a stand-in."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import calibration_samples as samples
import pytest

from kernel_compass.api.calibrating import Step
from kernel_compass.cli.calibration_progress import progress_text
from kernel_compass.cli.exit_codes import ExitCode, exit_code_of
from kernel_compass.codec.calibration_json import decode, encode
from kernel_compass.errors import CalibrationError, MeasurementCause, MeasurementError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(api, tmp_path):
    """The stand-in API with the doors of calibration."""
    api.own = None
    api.failure = None
    api.store = tmp_path / "store" / "own.json"

    def calibrate(quick, on_progress, device, **limit):
        api.calls.append((quick, device, limit))
        on_progress(Step("launch cost", 0, 9))
        on_progress(Step("read, 16 MiB", 4, 9))
        if api.failure is not None:
            raise api.failure
        return samples.complete()

    def save(calibration, path=None):
        target = path or api.store
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encode(calibration))
        return target

    def named(name):
        if name != "h200":
            raise CalibrationError(f"There is no calibration {name!r}.", "Measure one.")
        return samples.complete()

    api.calibrate, api.save_calibration, api.calibration = calibrate, save, named
    api.check_calibration_store = lambda: api.calls.append("checked")
    api.machine_calibration = lambda: api.own
    api.shipped_calibrations = lambda: ("a100", "h100")
    return api


def test_measuring_shows_progress_stores_and_reports(call, machine):
    code, out, err = call("calibrate")
    assert code == 0
    assert machine.calls == ["checked", (False, 0, {})]
    assert err.splitlines() == ["calibrating: 0 of 9 in 0 s, launch cost"]
    assert decode(machine.store.read_bytes()) == samples.complete()
    assert f"stored in {machine.store}" in "".join(out.splitlines())
    for word in ("NVIDIA H200", "46.0 MiB", "44.0 MiB to 48.0 MiB", "733 TFLOP/s", "measured"):
        assert word in out


def test_options_reach_it(call, machine):
    assert call("calibrate", "--quick", "--device", "3", "--timeout", "60")[0] == 0
    assert machine.calls[-1] == (True, 3, {"timeout_s": 60.0})


def test_json_of_what_was_measured(call, machine):
    _, out, _ = call("calibrate", "--json")
    assert decode(out) == samples.complete()
    assert machine.store.exists()


def test_output_is_the_file_instead_of_the_store(call, machine, tmp_path):
    path = tmp_path / "new" / "mine.json"
    code, out, _ = call("calibrate", "--output", path)
    assert code == 0
    assert decode(path.read_bytes()) == samples.complete()
    assert "checked" not in machine.calls
    assert not machine.store.exists()
    assert "mine.json" in out
    assert decode(call("calibrate", "--output", "-")[1]) == samples.complete()


def test_an_output_that_cannot_be_written_is_found_before_measuring(call, machine, tmp_path):
    code, _, err = call("calibrate", "--output", tmp_path)
    assert code == ExitCode.USAGE
    assert "folder" in err
    assert machine.calls == []


def test_a_store_that_cannot_be_written_is_found_before_measuring(call, machine):
    def fail():
        raise CalibrationError("It cannot be written.", "Give --output FILE.")

    machine.check_calibration_store = fail
    code, _, err = call("calibrate")
    assert code == ExitCode.CALIBRATION
    assert "--output" in err
    assert machine.calls == []


def test_ctrl_c_says_what_was_lost(call, machine):
    machine.failure = KeyboardInterrupt()
    code, out, err = call("calibrate")
    assert code == ExitCode.INTERRUPTED
    assert out == ""
    assert "4 of 9" in err
    assert "nothing was stored" in err
    assert not machine.store.exists()


@pytest.mark.parametrize("cause", list(MeasurementCause))
def test_measurement_failures_have_their_code(call, machine, cause):
    machine.failure = MeasurementError(cause, "It failed.", "Look.")
    code, _, err = call("calibrate")
    timeout = cause is MeasurementCause.TIMEOUT
    assert code == (ExitCode.TIMEOUT if timeout else ExitCode.MEASUREMENT)
    assert code == exit_code_of(machine.failure)
    assert err.endswith("error: It failed.\nnext: Look.\n")


def test_show_names_files_and_this_machines_own(call, machine):
    assert call("calibrate", "--show", "h200")[1].startswith("Calibration nvidia-h200\n")
    code, out, err = call("calibrate", "--show")
    assert (code, out) == (ExitCode.CALIBRATION, "")
    assert "no stored calibration" in err
    assert "a100, h100" in err
    machine.own = replace(samples.complete(), name="own")
    assert call("calibrate", "--show")[1].startswith("Calibration own\n")
    assert call("calibrate", "--show", "zz")[0] == ExitCode.CALIBRATION
    assert machine.calls == []


def test_show_as_markdown_and_json(call, machine, tmp_path):
    assert call("calibrate", "--show", "h200", "--format", "markdown")[1].startswith("## ")
    assert decode(call("calibrate", "--show", "h200", "--json")[1]) == samples.complete()
    for name in ("c.md", "c.json", "c.txt"):
        assert call("calibrate", "--show", "h200", "--output", tmp_path / name)[0] == 0
    assert (tmp_path / "c.md").read_text().startswith("## ")
    assert decode((tmp_path / "c.json").read_bytes()) == samples.complete()
    assert "\x1b" not in (tmp_path / "c.txt").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["h100"], "calibrate --show h100"),
        (["--format", "csv"], "'csv' is not one of"),
        (["--show", "h200", "--output", "c.csv"], "no CSV form"),
        (["--show", "h200", "--quick"], "--quick cannot go with it"),
        (["--show", "--device", "0"], "--device cannot go with it"),
        (["--show", "--quick", "--timeout", "5"], "--quick and --timeout"),
        (["--show", "h200", "--json", "--format", "markdown"], "contradict"),
        (["--device", "-1"], "--device"),
        (["--timeout", "0"], "--timeout"),
        (["--show", "h200", "more"], "more"),
    ],
)
def test_words_that_do_not_fit_together(call, machine, words, said):
    code, _, err = call("calibrate", *words)
    assert code == ExitCode.USAGE
    assert said in err
    assert machine.calls == []


def test_help_lists_the_exit_codes(call):
    out = call("calibrate", "--help")[1]
    assert "--show" in out
    assert "130  interrupted" in out


def test_help_offers_no_form_that_is_refused_and_says_how_long_it_takes(call):
    out = " ".join(call("calibrate", "--help")[1].split())
    assert "csv" not in out
    assert "about a minute" in out
    assert "no noise floor" in out


def test_progress_in_words():
    assert progress_text(Step("read,\x1b16 MiB", 4, 9), 31.4) == (
        "calibrating: 4 of 9 in 31 s, read, 16 MiB"
    )


def real(*words, **environment):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), **environment}
    return [sys.executable, "-m", "kernel_compass", "calibrate", *words], env


@pytest.mark.parametrize("name", ["a100", "h100", "b200", "b300"])
def test_shipped_ones_are_shown_by_the_real_command(name):
    argv, env = real("--show", name, "--json")
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == name


def test_a_bar_on_a_terminal_and_nothing_of_it_on_standard_output(tmp_path):
    """The real progress display, on a made-up calibration, with a terminal as standard error."""
    script = tmp_path / "show.py"
    script.write_text(
        "from kernel_compass.api.calibrating import Step\n"
        "from kernel_compass.cli import calibration_progress\n"
        "with calibration_progress.shown() as tell:\n"
        "    for i in range(3):\n"
        "        tell(Step(f'part [b]{i}', i, 3))\n"
    )
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, str(script)], env=env, stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.stdout == b""
    assert "part [b]2" in shown
