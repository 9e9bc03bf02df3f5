"""Commands end whole: what they started, wherever it went, ends with them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_compass.profiling.ncu_process import run_watched
from kernel_compass.profiling.quiet_run import run_quietly

DAEMON = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
os._exit(int(sys.argv[2]))
"""
CHILD = """
import os, sys, time
if not os.fork():
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(600)
print("here")
sys.stdout.flush()
time.sleep(float(sys.argv[2]))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(file: Path) -> bool:
    pid, end = int(file.read_text()), time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize("code", [0, 7])
def test_a_daemon_of_a_target_ends_with_it(tmp_path: Path, code: int) -> None:
    file = tmp_path / "pid"
    argv = [sys.executable, "-c", DAEMON, str(file), str(code)]
    assert run_watched(argv, os.environ, lambda: None, grace_s=0.3).returncode == code
    assert gone(file)


@pytest.mark.parametrize("seconds", [0.3, 60.0])
def test_a_quiet_command_leaves_no_child(tmp_path: Path, seconds: float) -> None:
    file = tmp_path / "pid"
    argv = [sys.executable, "-c", CHILD, str(file), str(seconds)]
    start = time.monotonic()
    if seconds > 1:
        with pytest.raises(subprocess.TimeoutExpired):
            run_quietly(argv, 1.0)
    else:
        assert run_quietly(argv, 30.0).stdout == "here\n"
    assert gone(file)
    assert time.monotonic() - start < 10


def test_a_quiet_command_that_floods_is_stopped() -> None:
    with pytest.raises(OSError, match="more than 1024 KiB"):
        run_quietly(["cat", "/dev/zero"], 30.0, largest_bytes=1 << 20)
    done = run_quietly(["sh", "-c", "echo a; echo b >&2; exit 3"], 30.0)
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\n", "b\n")
    assert run_quietly(["head", "-c", "3000000", "/dev/zero"], 30.0).stdout == "\0" * 3_000_000
