"""A library that keeps a thread as tqdm does, installed in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

MONITOR = '''
from threading import Event, Thread


class Monitor(Thread):
    """Looks now and then."""

    def __init__(self, pause=30.0, watched=None):
        super().__init__(name="tqdm_monitor", daemon=True)
        self.pause, self.watched, self.ended = pause, watched, Event()
        self.start()

    def run(self):
        while not self.ended.wait(self.pause):
            if self.watched is not None:
                self.watched()


def run(work):
    work()
'''
COMPILER = """
from concurrent.futures import ThreadPoolExecutor

from monitors import Monitor

POOL = ThreadPoolExecutor(1)


def compiles():
    POOL.submit(pow, 2, 3).result()
    return Monitor()


def submit(work):
    return POOL.submit(work)
"""
"""In the place of one of the compilers that are known."""


def install(folder: Path) -> None:
    """Make a folder of installed packages."""
    for name, text in {"monitors.py": MONITOR, "triton/__init__.py": COMPILER}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    record = folder / "monitors-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("monitors.py,,\n")


def search_path(*folders: Path) -> str:
    """As PYTHONPATH has it."""
    return os.pathsep.join(map(str, folders))
