"""Tasks that do what candidates should not."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LEFT = "60.25"
"""Seconds that what is left behind sleeps: no other test's process is called so."""


def raises(arguments, tell):
    raise ZeroDivisionError("in the middle")


def raises_base(arguments, tell):
    raise BaseException("bare")


def raises_text(arguments, tell):
    kind = type(arguments["kind"], (RuntimeError,), {})
    raise kind(arguments["text"])


def interrupts(arguments, tell):
    raise KeyboardInterrupt


def exits(arguments, tell):
    tell({"phase": "run"})
    os._exit(arguments["code"])


def exits_by_python(arguments, tell):
    sys.exit(arguments["code"])


def segfault(arguments, tell):
    ctypes.string_at(0)


def signals_itself(arguments, tell):
    os.kill(os.getpid(), arguments["number"])
    time.sleep(30)


def alarm_later(arguments, tell):
    """It answers, and means to end the next one."""
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return {}


def allows_tf32(arguments, tell):
    import torch

    torch.backends.cuda.matmul.fp32_precision = "tf32"
    return {"torch": torch.__version__}


def busy(arguments, tell):
    if arguments.get("run"):
        tell({"phase": "run"})
    if arguments.get("deaf"):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def eats_memory(arguments, tell):
    kept = []
    while True:
        kept.append(b"x" * (8 << 20))


def eats_memory_in_children(arguments, tell):
    for _ in range(4):
        if os.fork() == 0:
            kept = b"x" * (160 << 20)
            time.sleep(30)
            os._exit(len(kept) % 1)
    time.sleep(30)


def memory_error(arguments, tell):
    return {"length": len(bytearray(1 << 60))}


def floods(arguments, tell):
    line = b"x" * 65536
    while True:
        os.write(arguments["number"], line)


def floods_by_print(arguments, tell):
    while True:
        print("all the same " * 100)


def fork_bomb(arguments, tell):
    """It ends by itself in time, should nobody end it."""
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if os.fork() == 0 and arguments["away"]:
                os.setsid()
    time.sleep(4.0)
    os._exit(0)


def thread_bomb(arguments, tell):
    for _ in range(arguments["count"]):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    time.sleep(30)


def deletes_itself(arguments, tell):
    """File, working directory, temporary folder and caches of its own worker."""
    Path(arguments["file"]).unlink()
    for name in ("TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        shutil.rmtree(os.environ[name], ignore_errors=True)
    shutil.rmtree(Path.cwd())
    return {"gone": True}


def closes_all(arguments, tell):
    os.closerange(arguments["first"], 4096)
    return {"closed": True}


def forks_and_answers(arguments, tell):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return {"by": os.getpid()}


def leaves_it_to_the_child(arguments, tell):
    if os.fork():
        os._exit(0)
    return {"by": os.getpid()}


def leaves_child(arguments, tell):
    subprocess.Popen(["sleep", LEFT])
    return {}


def leaves_daemon(arguments, tell):
    """Away from parent, session and environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", LEFT], {})
        os._exit(0)
    os.wait()
    if arguments["dies"]:
        os._exit(0)
    return {}


def daemons_and_hang(arguments, tell):
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
        os.write(write, str(pid).encode())
        os._exit(0)
    daemon = int(os.read(read, 20))
    Path(arguments["file"]).write_text(json.dumps({"pid": os.getpid(), "daemon": daemon}) + "\n")
    time.sleep(60)


def leaves_thread(arguments, tell):
    threading.Thread(target=time.sleep, args=(30,), daemon=arguments["daemon"]).start()
    return {}


def leaves_idle_pool(arguments, tell):
    pool = ThreadPoolExecutor(2)
    result = pool.submit(pow, 2, 5).result()
    sys.modules["kept_pool"] = pool
    return {"result": result}


def forges(arguments, tell):
    """Into every pipe that it can find."""
    for number in range(3, 400):
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, b'0 {"result": {"forged": true}}\n{"result": {"forged": 1}}\n{"half')
            os.set_blocking(number, True)
    return {"forged": False}


def floods_answers(arguments, tell):
    while True:
        for number in range(200, 210):
            with contextlib.suppress(OSError):
                os.write(number, b"x" * 4096 + b"\n")


def nan_answer(arguments, tell):
    return {"value": float("nan")}


def huge_answer(arguments, tell):
    return {"text": "x" * (65 << 20)}


def no_json_answer(arguments, tell):
    return {"value": object()}


def no_dictionary(arguments, tell):
    return 7


def deep_answer(arguments, tell):
    value = []
    for _ in range(100_000):
        value = [value]
    return {"value": value}


def imports_nothing(arguments, tell):
    import no_such_module_of_ours

    return {"module": str(no_such_module_of_ours)}


def changes_state(arguments, tell):
    what = arguments["what"]
    if what == "timer":
        time.perf_counter = lambda: 0.0
    elif what == "environment":
        os.environ["TRITON_INTERPRET"] = "1"
    elif what == "builtins":
        import builtins

        builtins.abs = lambda value: value
    elif what == "affinity":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    elif what == "limits":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    elif what == "handler":
        signal.signal(signal.SIGUSR1, lambda *_: None)
    elif what == "stdout":
        os.dup2(0, 1)
    elif what == "umask":
        os.umask(0o777)
    return {"changed": what}


def sees_state(arguments, tell):
    start = time.perf_counter()
    time.sleep(0.01)
    return {
        "clock": time.perf_counter() > start,
        "interpret": os.environ.get("TRITON_INTERPRET"),
        "abs": abs(-1),
        "cpus": len(os.sched_getaffinity(0)),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64,
        "umask": os.umask(0o22),
        "random": random.random(),
    }


def kills_parent(arguments, tell):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


def replaces_itself(arguments, tell):
    os.execv("/bin/sleep", ["sleep", "30"])


def opens_socket(arguments, tell):
    pair = socket.socketpair()
    return {"number": pair[0].fileno()}


def leaves_library_thread(arguments, tell):
    """A library's own thread, or what only looks like it."""
    import monitors

    if arguments["own"]:
        kind = type("Monitor", (monitors.Monitor,), {"run": lambda self: time.sleep(30)})
        kind()
    else:
        monitors.Monitor()
    return {"threads": threading.active_count()}


def nests(arguments, tell):
    """An answer that can be written, and may be too deep to be read."""
    found = []
    for _ in range(arguments["depth"]):
        found = [found]
    return {"value": found}


def sends_no_answer(arguments, tell):
    """Send a last message in the worker's own place, in whatever form."""
    tell.__self__._tell.send(arguments["message"])
    time.sleep(60)
