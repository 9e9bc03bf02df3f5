"""`optimize` as a command: in a process of its own, on a recording or in real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from optimizer.loop_samples import TARGET, recording

from kernel_compass.api.proving import environment_key
from kernel_compass.cli.main import main
from kernel_compass.cli.optimize_view import JsonLines, Lines, Live
from kernel_compass.codec import loop_recording
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.optimizer.ledger import read_study
from kernel_compass.records.loop import LoopEvent, Stage
from kernel_compass.records.trial import Action, Candidate, Outcome, Proposal, Reason, Trial

ROOT = Path(__file__).parents[2]
FAULTY = """
import os, signal, time
import torch
WORKLOADS = [{"rows": 33, "width": 64}]
ERROR_BUDGET = 0.03
HELD = ["w"]
STREAMED = ["w"]

def inputs(workload, generator):
    def normal(*shape):
        return torch.randn(shape, generator=generator)
    return {"x": normal(workload["rows"], workload["width"]), "w": normal(workload["width"], 48)}

def reference(x, w):
    return x @ w

def baseline(x, w):
    return x @ w

def by_parts(x, w):
    return sum(a @ b for a, b in zip(x.chunk(2, 1), w.chunk(2, 0)))

def dies(x, w):
    os.kill(os.getpid(), signal.SIGSEGV)

def leaves(x, w):
    os._exit(3)

CANDIDATES = {"dies": dies, "by_parts": by_parts, "leaves": leaves}
"""


@pytest.fixture
def environment(tmp_path):
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "KERNEL_COMPASS_HOME": str(tmp_path / "home"),
        "KERNEL_COMPASS_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def proved(environment, monkeypatch):
    """As if the judge had proved itself in this environment: that takes a minute."""
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", environment["KERNEL_COMPASS_CACHE"])
    path = Path(environment["KERNEL_COMPASS_CACHE"]) / "self-test"
    path.mkdir(parents=True)
    (path / f"{environment_key('cpu')[0]}.json").write_text('{"passed": true}')


@pytest.fixture
def device(tmp_path):
    path = tmp_path / "r.json.gz"
    path.write_bytes(loop_recording.encode(recording()))
    return f"recorded:{path}"


@pytest.fixture
def call(monkeypatch, tmp_path, capfd):
    """Run the command in this process; returns exit code, standard output, standard error."""
    monkeypatch.setenv("KERNEL_COMPASS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*words):
        capfd.readouterr()
        code = main(["optimize", *map(str, words)])
        out, err = capfd.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


def only_study(tmp_path):
    (folder,) = (tmp_path / "home" / "studies").iterdir()
    return folder


def test_it_ends_with_a_table_that_was_asked_for(call, device, tmp_path):
    found = call(TARGET, "--device", device, "--trials", "40", "--table", "t/compass.json")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("accepted: fast w8a16_fp8") == 2
    assert "Written to t/compass.json" in found.stdout
    assert "over_budget: 11 % off" in found.stderr  # every rejection in a line
    assert all(len(line) <= 220 for line in found.stderr.splitlines())
    table = read_table(tmp_path / "t" / "compass.json")
    assert len(table.entries) == 2


def test_without_a_terminal_nothing_is_applied_unasked(call, device, tmp_path):
    found = call(TARGET, "--device", device, "--trials", "40")
    assert found.returncode == 0
    assert not (tmp_path / "compass.json").exists()
    (hint,) = [line for line in found.stdout.splitlines() if line.startswith("Not applied")]
    program, *words = hint.partition("Apply it: ")[2].split()
    assert program == "kernel-compass"
    assert main(words) == 0  # what it says is what works
    assert len(read_table(tmp_path / "compass.json").entries) == 2
    (tmp_path / "compass.json").unlink()
    applied = call("--resume", "last", "--yes", "--quiet")
    assert applied.returncode == 0, applied.stderr
    assert len(read_table(tmp_path / "compass.json").entries) == 2


def trial(number, name, number_format, reason, sizes="bmm 1"):
    candidate = Candidate(name, {}, number_format)
    proposal = Proposal(candidate, Action.IMPLEMENTATION, "why", "providers")
    detail = {Reason.OVER_BUDGET: "11 % off; the budget is 3 %"}.get(reason, f"said {number}")
    return Trial(number, sizes, proposal, Outcome.REJECTED, reason, detail)


def told(view, capsys):
    """36 trials over the budget in two formats, others between them, then the search."""
    number = 0
    for sizes in ("bmm 1", "bmm 2", "bmm 3"):
        for number_format in ("w4a16_gk", "w4a16_g128"):
            for name in "abcdef":
                number += 1
                one = trial(number, name, number_format, Reason.OVER_BUDGET, sizes)
                view.tell(LoopEvent(Stage.SELECT, f"line {number}", one))
        number += 1
        one = trial(number, "slow", "bf16", Reason.CANNOT_PAY, sizes)
        view.tell(LoopEvent(Stage.SELECT, f"cannot pay {number}", one))
    view.tell(LoopEvent(Stage.SELECT, "selected"))
    for one in (trial(50, "x", "bf16", Reason.REGISTER_SPILLS) for _ in range(3)):
        view.tell(LoopEvent(Stage.STATIC, "spills", one))
    view.tell(LoopEvent(Stage.STATIC, "compiled"))
    return [line.strip() for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("live", [False, True])
def test_formats_over_the_budget_are_a_line_each(capsys, monkeypatch, live):
    monkeypatch.setenv("COLUMNS", "250")
    with Live() if live else Lines() as view:
        lines = told(view, capsys)
    text = "\n".join(lines)
    assert text.count("over_budget") == 2
    assert not [line for line in lines if "line 1" in line]
    first = next(line for line in lines if "w4a16_gk " in line)
    assert "11 % off; the budget is 3 %" in first
    assert "6 implementations, 3 workloads (1 to 32)" in first
    assert text.count("cannot pay") == 3
    assert text.index("cannot pay 39") < text.index("w4a16_gk ") < text.index("selected")
    assert "register_spills: 3 configurations" in text
    assert text.index("register_spills") < text.index("compiled")


def test_what_is_summed_up_is_shown_where_the_run_breaks_off(capsys):
    view = Lines()
    with pytest.raises(KeyboardInterrupt), view:
        one = trial(1, "a", "w4a16_gk", Reason.OVER_BUDGET)
        view.tell(LoopEvent(Stage.SELECT, "x", one))
        raise KeyboardInterrupt
    assert "w4a16_gk  over_budget" in capsys.readouterr().err


def test_json_lines_have_each_of_them(capsys):
    view = JsonLines()
    one = trial(1, "a", "w4a16_gk", Reason.OVER_BUDGET)
    for _ in range(2):
        view.tell(LoopEvent(Stage.SELECT, "x", one))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_json_is_the_study_and_nothing_else(call, device):
    found = call(TARGET, "--device", device, "--trials", "20", "--json")
    document = json.loads(found.stdout)
    assert document["schema"] == "kernel-compass/study/1"
    assert document["state"] == "finished"


def test_json_lines_tell_stage_trials_best_and_verdicts(call, device):
    found = call(TARGET, "--device", device, "--trials", "20", "--json-lines")
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    assert stages == ["baseline", "select", "screen", "finals", "ended"]
    screens = [row for row in rows if row["stage"] == "screen" and row["trial"]]
    assert len(screens) == 20
    assert screens[-1]["done"] == 20 == screens[-1]["planned"]
    best = screens[-1]["best"]["bmm 128x1x128x512"]
    low, estimate, high = best["speedup"]["cold"]
    assert low < estimate < high


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Nothing is to be optimized"),
        ((TARGET, "--resume", "last"), "Both"),
        ((TARGET, "--json", "--quiet"), "exclude each other"),
        ((TARGET, "--budget", "much"), "is no percentage"),
        ((TARGET, "--static", "some"), "is no number of configurations"),
        ((TARGET, "--static", "-1"), "is no number of configurations"),
        ((TARGET, "--device", "recorded:x", "--static", "4"), "compiles nothing"),
        ((TARGET, "--device", "simulated", "--sanitize"), "a GPU's memory"),
        ((TARGET, "--strategy", "luck"), "no strategy"),
        ((TARGET, "--device", "recorded:nowhere"), "no recording"),
        (("nonsense", "--device", "simulated"), "no problem"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(call, words, said):
    found = call(*words)
    assert found.returncode == 2
    assert said in found.stderr
    assert "next:" in found.stderr


def test_a_table_that_cannot_be_written_is_refused_before_anything_runs(call, device, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.json").write_text("{")
    for name, said in (("folder", "is a folder"), ("broken.json", "broken.json")):
        found = call(TARGET, "--device", device, "--trials", "40", "--table", name)
        assert found.returncode != 0
        assert said in found.stderr and "next:" in found.stderr
        assert not (tmp_path / "home" / "studies").exists()
    assert (tmp_path / "broken.json").read_text() == "{"


ONLY_COPIES = (
    FAULTY.partition("def by_parts")[0]
    + """
def again(x, w):
    return x @ w + 0

def half(x, w):
    return 0.5 * (x @ w)

CANDIDATES = {"again": again, "half": half}
"""
)


def test_where_nothing_was_timed_nothing_is_said_of_its_speed(call, proved, tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(ONLY_COPIES)
    words = [problem, "--device", "simulated", "--regime", "warm", "--yes", "--trials", "9"]
    found = call(*words)
    assert found.returncode == 0, found.stderr
    assert "came as far as being timed" in found.stdout
    assert "nothing was faster" not in found.stdout


def test_a_study_that_is_not_there_cannot_be_resumed(call):
    found = call("--resume", "nothing")
    assert found.returncode == 11
    assert "no study" in found.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--regime", "cold"),
        ("--tokens", "1"),
        ("--tp", "2"),
        ("--budget", "9%"),
        ("--formats", "bf16"),
        ("--minutes", "9"),
        ("--trials", "9"),
        ("--strategy", "model"),
        ("--seed", "0"),
        ("--static", "off"),
        ("--sanitize",),
        ("--device", "cuda"),
    ],
)
def test_what_a_resumed_study_cannot_take_up_is_refused(call, words):
    found = call("--resume", "last", *words)
    assert found.returncode == 2
    assert f"as it was begun: {words[0]} cannot be named" in found.stderr


def test_in_real_workers_the_right_candidate_is_blamed_and_ctrl_c_leaves_nothing(
    call, environment, proved, tmp_path
):
    problem = tmp_path / "problem.py"
    problem.write_text(FAULTY)
    words = [str(problem), "--device", "simulated", "--regime", "warm", "--yes"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_compass", "optimize", *words, "--trials", "9"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " dies " in line and "crashed" in line:
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    found = read_study(only_study(tmp_path))
    assert found.study.state == "stopped"
    assert not any(one.blamed for one in found.interruptions)
    _nothing_runs(str(tmp_path))

    resumed = call("--resume", "last", "--yes")
    assert resumed.returncode == 0, resumed.stderr
    trials = read_study(only_study(tmp_path)).trials
    reasons = {t.proposal.candidate.implementation: str(t.reason) for t in trials}
    assert reasons["dies"] == "crashed"
    assert reasons["leaves"] == "exited"
    assert reasons["by_parts"] == "not_faster"  # on the simulated device all bytes cost alike


def test_a_file_is_not_run_before_somebody_agreed(call, tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(FAULTY)
    found = call(problem, "--device", "simulated")
    assert found.returncode == 2
    assert "--yes" in found.stderr
    assert not (tmp_path / "home" / "studies").exists()


def _nothing_runs(mark):
    """No process with this text in its environment or command line, after a moment."""
    deadline = time.monotonic() + 10
    while True:
        left = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                left.append(entry.name)
        if not left:
            return
        assert time.monotonic() < deadline, f"processes {left} are left"
        time.sleep(0.1)
