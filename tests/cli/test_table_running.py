"""Measuring tables from the command line, on the simulated GPU: rows, files, interruptions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.simulated_tables import Machine

import kernel_compass.api.kernels as doors
from kernel_compass.cli.main import main
from kernel_compass.codec.kernel_table import decode, decode_csv
from kernel_compass.records.kernel_table import RowStatus

SWEEP = (
    "sweep",
    "--n",
    "512,1024,2048",
    "--tokens",
    "1",
    "--precisions",
    "bf16,w8a16_fp8,w4a16_gk",
)
ROWS = 3 * 3 * 2


@pytest.fixture
def on(capfd, monkeypatch):
    """Run a command line on a machine; returns exit code, standard output and error."""

    def run(machine, *words):
        monkeypatch.setattr(doors, "open_table", machine.open_table)
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def rows_in(file):
    return decode(file.read_bytes()).rows if file.exists() else ()


def test_a_table_for_people_has_times_ratios_floors_and_errors(on):
    code, out, _ = on(Machine(), *SWEEP)
    assert code == 0
    assert out.startswith("simulated GPU, calibration h200")
    line = next(x for x in out.splitlines() if "fake_w4" in x and " 2048 " in x)
    assert "11.0 %" in line
    head = next(x for x in out.splitlines() if x.lstrip().startswith("M "))
    for word in ("time", "floor", "headroom", "x bf16", "TFLOP/s", "GB/s", "error"):
        assert word in head
    assert max(len(x) for x in out.splitlines()) <= 100
    assert "x bf16 over N = 512 ... 2048" in out
    assert "▁" in out or "█" in out


def test_mla_adds_up_both_products_of_all_layers(on):
    code, out, _ = on(Machine(), "mla", "--tokens", "1", "--json")
    rows = decode(out).rows
    assert code == 0
    assert {r.workload.name for r in rows} == {"q_absorb", "v_up"}
    code, out, _ = on(Machine(), "mla", "--tokens", "1")
    assert "both products, one kernel for both" in out
    mine = [r for r in rows if r.implementation == "fake_w8" and r.regime.value == "cold"]
    whole = sum(61 * r.time_us for r in mine)
    totals = out.split("both products")[1]
    line = next(x for x in totals.splitlines() if "cold" in x and "fake_w8" in x)
    assert f"{whole:,.0f} us" in line


def test_a_file_grows_with_the_rows_and_people_see_a_table(on, tmp_path):
    file = tmp_path / "new" / "t.json"
    code, out, err = on(Machine(), *SWEEP, "--output", file)
    assert code == 0
    assert "headroom" in out and f"stored in {file}" in err
    table = decode(file.read_bytes())
    assert len(table.rows) == ROWS
    assert (table.calibration, all(r.speedup for r in table.rows)) == ("h200", True)


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_an_interrupt_keeps_the_rows_and_the_same_command_goes_on(on, tmp_path, suffix):
    file = tmp_path / f"t.{suffix}"
    read = decode if suffix == "json" else decode_csv
    code, out, err = on(Machine(stop_after=4), *SWEEP, "--output", file)
    assert (code, out) == (130, "")
    assert f"8 rows kept in {file}" in err
    assert len(read(file.read_text()).rows) == 8
    machine = Machine()
    code, out, err = on(machine, *SWEEP, "--output", file)
    assert code == 0
    assert "rows of" in err and "kept" in err
    assert machine.measured == 3 * 3 - 4 + 1  # the second width's baseline once more
    rows = read(file.read_text()).rows
    assert len(rows) == ROWS
    assert out.count("fake_w4") >= 6


def test_again_measures_everything_anew(on, tmp_path):
    file = tmp_path / "t.json"
    on(Machine(), *SWEEP, "--output", file)
    machine = Machine()
    on(machine, *SWEEP, "--output", file, "--again")
    assert machine.measured == 9
    assert len(decode(file.read_bytes()).rows) == ROWS


def test_other_rows_of_a_file_stay_in_it(on, tmp_path):
    file = tmp_path / "t.json"
    on(Machine(), *SWEEP, "--output", file)
    code, out, _ = on(Machine(), *SWEEP[:1], "--n", "256", "--tokens", "1", "--output", file)
    assert code == 0
    assert " 2048 " not in out
    assert len(decode(file.read_bytes()).rows) == ROWS + 6


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_a_plan_does_not_replace_what_was_measured(on, tmp_path, suffix):
    file = tmp_path / f"t.{suffix}"
    on(Machine(), *SWEEP, "--output", file)
    before = file.read_bytes()
    code, out, err = on(Machine(), *SWEEP, "--dry-run", "--gpu", "h200", "--output", file)
    assert (code, out) == (2, "")
    assert f"holds {ROWS} rows of a measurement" in err
    assert file.read_bytes() == before


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_a_measurement_takes_the_place_of_its_plan(on, tmp_path, suffix):
    file = tmp_path / f"t.{suffix}"
    for _ in range(2):  # a plan may be made again
        assert on(Machine(), *SWEEP, "--dry-run", "--gpu", "h200", "--output", file)[0] == 0
    assert on(Machine(), *SWEEP, "--output", file)[0] == 0
    rows = (decode if suffix == "json" else decode_csv)(file.read_text()).rows
    assert len(rows) == ROWS
    assert {row.status for row in rows} == {RowStatus.MEASURED}


def test_a_plot_has_a_file_of_its_own(on, tmp_path):
    machine, file = Machine(), tmp_path / "t.svg"
    table = ("--format", "markdown", "--output", file)
    code, _, err = on(machine, *SWEEP, *table, "--plot", tmp_path / "x" / ".." / "t.svg")
    assert (code, machine.measured, file.exists()) == (2, 0, False)
    assert "the same file" in err
    file.mkdir()
    code, _, err = on(machine, *SWEEP, "--plot", file)
    assert (code, machine.measured) == (2, 0)
    assert f"--plot {file} is a folder" in err


def test_an_interrupt_without_a_file_says_how_to_keep_rows(on):
    code, out, err = on(Machine(stop_after=2), *SWEEP)
    assert (code, out) == (130, "")
    assert "name --output" in err


def test_a_wrong_kernel_has_a_reason_and_no_time(on):
    code, out, _ = on(Machine(fault="wrong"), *SWEEP)
    assert code == 0
    assert "failed: fake_w4 in w4a16_gk, bmm 128x1x128x512 warm and 5 more: frobenius" in " ".join(
        out.split()
    )
    table = out.split("!")[0]
    assert "fake_w4" not in table


def test_nothing_measured_is_an_error(on, tmp_path):
    file = tmp_path / "t.json"
    words = (
        "sweep",
        "--n",
        "512",
        "--tokens",
        "1",
        "--heads",
        "1",
        "--k",
        "16",
        "--regime",
        "cold",
    )
    code, _, err = on(Machine(), *words, "--output", file)
    assert code == 9
    assert "Nothing could be measured" in err and "copies would be needed" in err
    assert all(r.status is RowStatus.FAILED for r in decode(file.read_bytes()).rows)


def test_progress_is_on_standard_error(on):
    _, out, err = on(Machine(), *SWEEP, "--json")
    assert "measuring: 0 of 9" in err
    assert decode(out).rows


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_a_file_that_the_next_one_continues(tmp_path, number):
    file = tmp_path / "t.json"
    here = Path(__file__).resolve().parents[1]
    paths = [str(here), str(here.parent / "src")]
    command = [sys.executable, "-m", "cli.simulated_tables", *SWEEP, "--output", str(file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def start():
        return subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    run = start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(rows_in(file)) < 4:
        time.sleep(0.01)
    run.send_signal(number)
    run.communicate(timeout=60)
    kept = decode(file.read_bytes()).rows
    assert 4 <= len(kept) < ROWS
    again = start()
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert "measured here earlier: kept" in err
    assert len(decode(file.read_bytes()).rows) == ROWS
    assert not [p for p in tmp_path.iterdir() if p != file and number != signal.SIGKILL]
