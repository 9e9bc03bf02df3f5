"""Tasks that behave, and tasks that do not."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernel_compass.errors import (
    CalibrationError,
    MeasurementCause,
    MeasurementError,
    MissingDependency,
)


def double(arguments, tell):
    for i in range(3):
        tell({"done": i})
    return {"twice": 2 * arguments["number"], "pid": os.getpid()}


def environment(arguments, tell):
    return {"value": os.environ.get(arguments["variable"])}


def large(arguments, tell):
    return {"text": "x" * arguments["size"]}


def echo_size(arguments, tell):
    return {"size": len(arguments["text"])}


def prints_junk(arguments, tell):
    print('{"result": {"forged": true}}', flush=True)
    print("not json", flush=True)
    os.write(1, b'{"result": {"forged": true}}\n\xff\xfe\n')
    subprocess.run([sys.executable, "-c", "print('{\"error\": {}}')"], check=True)
    with contextlib.suppress(EOFError):
        input()
    return {"forged": False}


def raises(arguments, tell):
    raise ZeroDivisionError("in the middle")


def raises_ours(arguments, tell):
    if arguments["kind"] == "measurement":
        raise MeasurementError(MeasurementCause.NO_GPU, "No GPU here.", "Plug one in.")
    if arguments["kind"] == "missing":
        raise MissingDependency("No ncu.", "Install it.")
    raise CalibrationError("Broken.", "Again.")


def no_torch(arguments, tell):
    import torch  # noqa: F401

    return {}


class OutOfMemoryError(RuntimeError):
    """As torch calls it."""


def out_of_memory(arguments, tell):
    raise OutOfMemoryError("CUDA out of memory")


def not_json(arguments, tell):
    return {"value": float("nan")}


def no_dictionary(arguments, tell):
    return 3


def leaves(arguments, tell):
    os._exit(arguments["code"])


def system_exit(arguments, tell):
    sys.exit("going home")


def segfault(arguments, tell):
    ctypes.string_at(0)
    return {}


def dies_by_signal(arguments, tell):
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return {}


def hangs(arguments, tell):
    if arguments.get("deaf"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell({"pid": os.getpid()})
    time.sleep(600)
    return {}


def crash_after_answer(arguments, tell):
    import atexit

    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
    return {"ok": True}


def leaves_children(arguments, tell):
    """Children that hold the pipes: one in the session, one in a session of its own."""
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    first = subprocess.Popen(argv)
    second = subprocess.Popen(argv, start_new_session=True)
    forked = os.fork()  # holds the private pipe as well
    if not forked:
        time.sleep(600)
        os._exit(0)
    tell({"pids": [first.pid, second.pid, forked]})
    if arguments.get("crash"):
        os._exit(7)
    return {"pids": [first.pid, second.pid, forked]}


def outlives(arguments, tell):
    """What a parent that is killed leaves behind."""
    Path(arguments["file"]).write_text(json.dumps(os.getpid()))
    time.sleep(600)
    return {}


def sleeps(arguments, tell):
    time.sleep(600)
    return {}


def tells_much_and_leaves(arguments, tell):
    if not os.fork():
        time.sleep(600)
        os._exit(0)
    for i in range(arguments["count"]):
        tell({"i": i})
    os._exit(5)
