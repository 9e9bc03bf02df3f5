"""Whose a thread or a process is: told by its code, whatever it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kept_threads import install, search_path

from kernel_compass import library_work

SRC = Path(__file__).parents[1] / "src"
BEGINNING = """
import json, sys, threading, time
from pathlib import Path
from kernel_compass import library_work
library_work.attend_starts()
import monitors

def works():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.001)

def started(**named):
    threading.Thread(daemon=True, **named).start()
"""
END = """
time.sleep(0.1)
new = [t for t in threading.enumerate() if t is not threading.main_thread()]
print(json.dumps([[library_work.is_librarys(t), library_work.is_compilers(t)] for t in new]))
"""


def seen(tmp_path, act):
    """Whether each thread that `act` leaves is a library's, and a compiler's."""
    install(tmp_path)
    (tmp_path.parent / f"{tmp_path.name}.py").write_text(BEGINNING + act + END)
    done = subprocess.run(
        [sys.executable, str(tmp_path.parent / f"{tmp_path.name}.py")],
        env={**os.environ, "PYTHONPATH": search_path(tmp_path, SRC)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_what_a_compiler_started_is_its_own(tmp_path):
    """A worker of its pool runs the standard library's code: whose it is, the start tells."""
    assert seen(tmp_path, "import triton\ntriton.compiles()\n") == [[False, True], [True, True]]


def test_a_librarys_thread_that_a_candidate_starts_is_no_compilers(tmp_path):
    assert seen(tmp_path, "monitors.Monitor()\n") == [[True, False]]


@pytest.mark.parametrize(
    "act",
    [
        "started(target=works, name='tqdm_monitor')",
        "started(target=time.sleep, args=(20,), name='tqdm_monitor')",
        "class Monitor(monitors.Monitor):\n    run = lambda self: works()\nMonitor()",
        "monitors.Monitor.run = lambda self: works()\nmonitors.Monitor()",
        "def run(self): works()\nrun.__code__ = run.__code__.replace("
        "co_filename=monitors.__file__)\nmonitors.Monitor.run = run\nmonitors.Monitor()",
        "text = 'def run(work):\\n    work()\\n'\nplace = {}\n"
        "exec(compile(text, monitors.__file__, 'exec'), place)\n"
        "started(target=place['run'], args=(works,))",
        "started(target=monitors.run, args=(works,))",
        "monitors.Monitor(0.0, works)",
        "one = threading.Thread(daemon=True)\none.run = works\none.start()",
        "import triton\ntriton.submit(works)",
    ],
)
def test_nothing_that_a_candidate_runs_is_a_librarys(tmp_path, act):
    """Names, classes, file names, callbacks: each thread's code is looked at as it is."""
    assert seen(tmp_path, act + "\n") == [[False, False]]


def test_a_file_that_changed_since_the_start_is_no_librarys(tmp_path):
    act = (
        "file = Path(monitors.__file__)\n"
        "file.write_text(file.read_text() + 'def more(): import time; time.sleep(20)\\n')\n"
        "import importlib\nimportlib.reload(monitors)\nstarted(target=monitors.more)\n"
    )
    assert seen(tmp_path, act) == [[False, False]]


def test_a_process_is_told_by_its_program_and_file(tmp_path):
    """An own program under the compile worker's arguments, and Python with another file."""
    arguments = [f"--parent={os.getpid()}", "--kind=fork", "--pickler=torch._inductor.x.Y"]
    wait = "import time; time.sleep(30)"
    worker = library_work._compile_worker() or "/no/torch/compile_worker/__main__.py"
    for command, program in (
        ([sys.executable, worker, *arguments, "30"], "/bin/sleep"),
        ([sys.executable, "-c", wait, worker, *arguments], sys.executable),
        ([sys.executable, "-c", wait], sys.executable),
    ):
        child = subprocess.Popen(command, executable=program, stderr=subprocess.DEVNULL)
        try:
            assert not library_work.is_compile_worker(child.pid, os.getpid())
        finally:
            child.kill()
            child.wait()


def test_inductors_own_process_is_known():
    pytest.importorskip("torch", reason="needs torch")
    program = (
        "import os, time\nfrom kernel_compass import library_work as work\n"
        "from torch._inductor.compile_worker.subproc_pool import SubprocPool\n"
        "pool = SubprocPool(1)\n"
        "forks = pool.submit(os.getpid).result()\n"
        "print([work.is_compile_worker(p, os.getpid()) for p in (pool.process.pid, forks)])\n"
        "print(work.is_compile_worker(os.getpid(), os.getppid()))\n"
        "pool.shutdown()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == ["[True, True]", "False"]
