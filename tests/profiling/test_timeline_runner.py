"""`profile --no-counters` against a torch played by a package on the child's path."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kineto_files import TraceBuilder, eager_steps

from kernel_compass.errors import MissingDependency, ProfilingCause, ProfilingError, UsageError
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.profiling.timeline_runner import TimelineProgress, run_timeline
from kernel_compass.records.profile import Regime, SourceFormat
from kernel_compass.records.request import ProfileRequest

ROOT = Path(__file__).resolve().parents[2]
FAKE_TORCH = Path(__file__).with_name("fake_torch")
PYTHON = sys.executable


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A torch whose profiler records three eager steps; called, it plays something else."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("PYTHONPATH", str(FAKE_TORCH))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("FAKE_TRACE", str(eager_steps().write(tmp_path / "fake.json")))

    def play(scenario: str = "", trace: Path | None = None) -> None:
        monkeypatch.setenv("FAKE_PROFILER", scenario)
        if trace is not None:
            monkeypatch.setenv("FAKE_TRACE", str(trace))

    return play


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], tuple[str, ...]]:
    """A script of this text, as a command."""

    def write(text: str, *arguments: str) -> tuple[str, ...]:
        path = tmp_path / "target.py"
        path.write_text(text)
        return (PYTHON, str(path), *arguments)

    return write


def failure(command: tuple[str, ...], **more) -> ProfilingError:
    with pytest.raises(ProfilingError) as caught:
        run_timeline(ProfileRequest(command, **more), grace_s=5.0)
    return caught.value


def test_the_program_runs_as_it_would_alone(torch, script, tmp_path, capfd) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    command = script(
        "import sys, __main__, beside\n"
        "print('ran', __name__, __file__, sys.argv[1:], sys.path[0], beside.NAME)\n"
        "print('doctor' in sys.modules, __main__.__file__ == __file__)\n"
        "try:\n    import doctor\nexcept ImportError: print('clean path')\n",
        "-x", "y z",
    )  # fmt: skip
    (trace,) = run_timeline(ProfileRequest(command))
    out = capfd.readouterr().out
    wanted = f"ran __main__ {command[1]} ['-x', 'y z'] {tmp_path} beside\nFalse True\nclean path"
    assert wanted in out
    assert (trace.source.format, trace.source.regime) == (SourceFormat.KINETO_RUN, Regime.IN_SITU)
    assert trace.source.path is None
    assert len(trace.events) == 18
    assert trace.warnings == ()


def test_modules_code_and_console_scripts(torch, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mod.py").write_text("import sys; print('mod', __name__, sys.argv[1:])\n")
    tool = tmp_path / "tool"
    tool.write_text("#!/usr/bin/env python3\nimport sys; print('tool', sys.argv[1:])\n")
    for command in (
        (PYTHON, "-m", "mod", "a"),
        (PYTHON, "-X", "dev", "-c", "import sys; print('code', sys.argv)", "a"),
        (str(tool), "a"),
    ):
        assert len(run_timeline(ProfileRequest(command))) == 1
    out = capfd.readouterr().out
    assert "mod __main__ ['a']" in out
    assert "code ['-c', 'a']" in out
    assert "tool ['a']" in out


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit(3)", 3), ("sys.exit('no luck')", 1), ("raise ValueError('no luck')", 1)],
)
def test_the_trace_is_kept_however_the_program_ends(torch, script, capfd, end, code) -> None:
    (trace,) = run_timeline(ProfileRequest(script(f"import sys\n{end}\n")))
    assert f"exit code {code}" in trace.warnings[0]
    assert len(trace.events) == 18
    err = capfd.readouterr().err
    assert "torch_runner" not in err
    assert "runpy" not in err
    assert ("no luck" in err) is ("luck" in end)


def test_sys_exit_0_is_no_failure(torch, script) -> None:
    (trace,) = run_timeline(ProfileRequest(script("import sys; sys.exit()")))
    assert trace.warnings == ()


def test_save_keeps_the_trace_under_a_free_name(torch, script, tmp_path) -> None:
    request = ProfileRequest(script("pass"), save_dir=tmp_path / "kept")
    paths = [run_timeline(request)[0].source.path for _ in range(2)]
    names = ["target_timeline.json.gz", "target-2_timeline.json.gz"]
    assert [Path(path).name for path in paths] == names
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == sorted(names)
    assert len(read_traces(paths[1])[0].events) == 18


def test_without_torch(script, monkeypatch, tmp_path) -> None:
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told: list[TimelineProgress] = []
    with pytest.raises(MissingDependency, match="libcudart") as caught:
        run_timeline(ProfileRequest(script("print('never')")), told.append)
    assert "pip install torch triton nvidia-ml-py" in caught.value.remedy
    assert all(progress.seconds >= 1.0 for progress in told)  # none before anything is recorded


def test_without_gpu_work(torch, script, tmp_path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1)
    torch("cpu_only", trace.write(tmp_path / "cpu.json"))
    error = failure(script("import subprocess; subprocess.run(['true'])"))
    assert error.cause is ProfilingCause.NOTHING_PROFILED
    assert "1 operators" in error.found
    assert "Recorded activities: CPU." in error.found
    assert "started 1 other processes" in error.found
    assert "torch.cuda.is_available" in error.remedy


def test_a_program_that_fails_before_it_uses_the_gpu(torch, script, tmp_path) -> None:
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 1)
    torch("", trace.write(tmp_path / "cpu.json"))
    error = failure(script("raise SystemExit('no such model')"))
    assert error.cause is ProfilingCause.TARGET_FAILED
    assert "no such model" in error.found


def test_a_program_that_python_does_not_survive(torch, script) -> None:
    error = failure(script("import os; os._exit(0)"))
    assert error.cause is ProfilingCause.NOTHING_PROFILED
    assert "os._exit" in error.found
    error = failure(script("import os; os.kill(os.getpid(), 11)"))
    assert error.cause is ProfilingCause.TARGET_FAILED
    assert "SIGSEGV" in error.found


def test_an_export_that_fails(torch, script) -> None:
    torch("sync_fails")
    error = failure(script("pass"))
    assert error.cause is ProfilingCause.TARGET_FAILED
    assert "illegal memory access" in error.found


def test_a_damaged_export(torch, script, tmp_path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text((tmp_path / "fake.json").read_text()[:4000])
    torch("", cut)
    error = failure(script("pass"))
    assert error.cause is ProfilingCause.TARGET_FAILED
    assert "cut off" in error.found


def test_a_forked_child_that_falls_through_exports_nothing(torch, script) -> None:
    command = script("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n")
    (trace,) = run_timeline(ProfileRequest(command))
    assert "started 1 other processes" in trace.warnings[0]


def test_the_time_out_keeps_what_was_recorded(torch, script) -> None:
    command = script("import time\nprint('on it', flush=True)\ntime.sleep(60)\n")
    begin = time.monotonic()
    (trace,) = run_timeline(ProfileRequest(command, timeout_s=1.5))
    assert time.monotonic() - begin < 20
    assert "time-out" in trace.warnings[0]
    assert len(trace.events) == 18


def test_a_time_out_that_the_program_ignores(torch, script) -> None:
    text = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)\n"
    with pytest.raises(ProfilingError) as caught:
        run_timeline(ProfileRequest(script(text), timeout_s=1.0), grace_s=0.5)
    assert caught.value.cause is ProfilingCause.TIMEOUT


def test_the_time_out_says_when_it_struck_and_not_when_the_program_died(torch, script) -> None:
    text = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)\n"
    with pytest.raises(ProfilingError, match="struck after 1 s"):
        run_timeline(ProfileRequest(script(text), timeout_s=1.0), grace_s=2.5)


def test_progress_is_told(torch, script) -> None:
    told = []
    run_timeline(ProfileRequest(script("import time; time.sleep(1.3)")), told.append)
    assert told
    assert told[-1].seconds >= 1.0


@pytest.mark.parametrize("command", [("/bin/ls",), (PYTHON,), (PYTHON, "-X", "dev")])
def test_only_python_programs(torch, command) -> None:
    with pytest.raises(UsageError):
        run_timeline(ProfileRequest(command))


def test_a_folder_that_cannot_be_made(torch, script, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be created"):
        run_timeline(ProfileRequest(script("pass"), save_dir=tmp_path / "file" / "kept"))


def cli(*words: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT / "src"), str(FAKE_TORCH)])
    return subprocess.Popen(
        [PYTHON, "-m", "kernel_compass", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip


def test_ctrl_c_keeps_the_trace_where_it_was_asked_to(torch, script, tmp_path) -> None:
    ready = tmp_path / "ready"
    command = script(f"import time\nopen({str(ready)!r}, 'w').close()\ntime.sleep(60)\n")
    process = cli("profile", "--no-counters", "--save", str(tmp_path / "kept"), command[1])
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert len(read_traces(tmp_path / "kept" / "target_timeline.json.gz")[0].events) == 18


def test_the_command_line(torch, script, tmp_path) -> None:
    command = script("import time; time.sleep(1.3); print('the program speaks')")
    process = cli("profile", "--no-counters", "--json", "--label", "L", command[1])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert document["label"] == "L"
    assert document["sources"][0]["format"] == "kineto-run"
    assert document["timeline"]["behind"] == "cpu"
    assert "the program speaks" in err
    assert "recording a timeline" in err


def test_options_of_counters_contradict_it(torch, script) -> None:
    command = script("pass")
    process = cli("profile", "--no-counters", "--regime", "warm", "--kernels", "x", command[1])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--regime, --kernels contradict" in err


def test_a_killed_parent_leaves_no_program_and_no_folder(torch, script, tmp_path) -> None:
    note = tmp_path / "pid"
    command = script(
        "import os, sys, time\n"
        "open(sys.argv[1] + '.part', 'w').write(str(os.getpid()))\n"
        "os.rename(sys.argv[1] + '.part', sys.argv[1])\n"
        "time.sleep(600)\n",
        str(note),
    )
    code = (
        "from kernel_compass.profiling.timeline_runner import run_timeline\n"
        "from kernel_compass.records.request import ProfileRequest\n"
        f"run_timeline(ProfileRequest({command!r}))\n"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(FAKE_TORCH)])
    temporary = tmp_path / "tmp"
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)}
    parent = subprocess.Popen([PYTHON, "-c", code], env=environment)
    end = time.monotonic() + 30
    while not note.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert list(temporary.iterdir())
    parent.kill()
    parent.wait()
    runner = Path(f"/proc/{note.read_text()}/cmdline")
    while (runner.exists() and runner.read_bytes()) or any(temporary.iterdir()):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_program_waits_for_its_own_children_alone(torch, script, capfd) -> None:
    run_timeline(
        ProfileRequest(
            script("import os\ntry: os.wait()\nexcept ChildProcessError: print('childless')\n")
        )
    )
    assert "childless" in capfd.readouterr().out
