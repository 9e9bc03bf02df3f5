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


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def fails(arguments, tell):
    kinds = {
        "base": BaseException("bare"),
        "generator": GeneratorExit("closing"),
        "group": BaseExceptionGroup("many", [KeyboardInterrupt()]),
        "unspeakable": Unspeakable(),
        "long": ValueError("x" * 10_000_000),
    }
    raise kinds[arguments["kind"]]


def forks_through(arguments, tell):
    """The child goes on where the task does, and is first there."""
    child = os.fork()
    if not child and arguments["kind"] == "raises":
        raise ValueError("the child's")
    if not child and arguments["kind"] == "tells":
        tell({"from": "the child"})
    if child:
        os.waitpid(child, 0)
    return {"pid": os.getpid(), "forked": not child}


def forges(arguments, tell):
    for number in range(3, 1000):
        with contextlib.suppress(OSError):
            os.write(number, b'{"result": {"forged": true}}\n')
    return {"forged": False}


def closes_all(arguments, tell):
    os.closerange(0, 100)
    return {"ok": True}


def writes_without_end(arguments, tell):
    """Into the private pipe itself."""
    for number in range(200, 220):
        with contextlib.suppress(OSError):
            for _ in range(70):
                os.write(number, b"x" * (1 << 20))
    return {}


def leaves_daemons(arguments, tell):
    """As daemons do it: a session of their own, and no parent."""
    reading, writing = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(writing, str(os.getpid()).encode())
            time.sleep(600)
        os._exit(0)
    os.wait()
    tell({"pid": int(os.read(reading, 20))})
    if arguments["crash"]:
        os._exit(7)
    return {}
