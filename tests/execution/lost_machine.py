"""Tasks that lose their machine: a file stands for it, one for each GPU that a worker has."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def mark(arguments):
    return Path(arguments["folder"]) / f"lost {os.environ.get('CUDA_VISIBLE_DEVICES', '')}"


def check(arguments, tell):
    """The check of a machine."""
    log = Path(arguments["folder"]) / "checked"
    with log.open("a") as file:
        file.write(f"{os.getpid()}\n")
    left = Path(arguments["folder"]) / "fails"
    if left.exists():
        left.unlink()
        raise RuntimeError("the driver is still clearing up")
    if mark(arguments).exists():
        raise RuntimeError("CUDA error: no CUDA-capable device is detected")
    return {}


def loses(arguments, tell):
    """It fails as tasks of a lost machine do, on one of these GPUs; elsewhere it answers."""
    where = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if where not in arguments["where"]:
        return {"ran": where}
    mark(arguments).touch()
    tell({"phase": "run"})
    fails(arguments["how"])
    raise AssertionError


def faults(arguments, tell):
    """It fails in the same way, and the machine is well."""
    fails(arguments["how"])


def fails(how):
    if how == "ends the process behind it":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(30)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(30)
    if how == "hangs":
        time.sleep(60)
    raise RuntimeError(how)
