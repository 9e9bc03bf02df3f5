"""Tasks that do as they are told."""

from __future__ import annotations

import os
import time
from pathlib import Path


def echo(arguments, tell):
    return {"value": arguments["value"]}


def spends(arguments, tell):
    """Say that this process is of no further use."""
    return {"pid": os.getpid(), "spent": "It was caught"}


def sleep(arguments, tell):
    tell({"phase": "run"})
    time.sleep(arguments["seconds"])
    return {}


def begin_and_sleep(arguments, tell):
    Path(arguments["file"]).touch()
    time.sleep(arguments["seconds"])
    return {}


def fail(arguments, tell):
    raise LookupError(arguments["text"])


def phases(arguments, tell):
    time.sleep(arguments["compiling"])
    tell({"phase": "run"})
    time.sleep(arguments["running"])
    return {"ran": True}


def meet(arguments, tell):
    folder = Path(arguments["folder"])
    (folder / str(arguments["number"])).touch()
    end = time.monotonic() + 20
    while len(list(folder.iterdir())) < arguments["count"]:
        if time.monotonic() > end:
            raise TimeoutError("the others did not begin")
        time.sleep(0.01)
    return {}


def look(arguments, tell):
    """Of the process it is in; and innocent: it uses what others may have broken."""
    tell({"phase": "run"})
    print("innocent", flush=True)
    Path("mine").write_text("here")
    Path(os.environ["TMPDIR"], "mine").write_text("here")
    folder = {name: os.environ.get(name) for name in arguments.get("variables", [])}
    return {"pid": os.getpid(), "cwd": str(Path.cwd()), "variables": folder}
