"""Progress of what is measured part by part, on standard error only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import typer

from kernel_compass.report.phrases import plain

LINE_EVERY_S = 5.0
"""Without a terminal, at most one line in this many seconds."""


class ProgressLike(Protocol):
    """What the live procedure tells before each part."""

    @property
    def part(self) -> str:
        """What is being measured, in words."""

    @property
    def done(self) -> int:
        """Parts before this one."""

    @property
    def total(self) -> int:
        """Parts there are, as far as it is known."""


def progress_text(progress: ProgressLike, seconds: float, doing: str = "calibrating") -> str:
    """`calibrating: 12 of 90 in 31 s, read, rotated, 16 MiB`."""
    done = f"{doing}: {progress.done} of {progress.total} in {seconds:.0f} s"
    return f"{done}, {plain(progress.part)[:60]}"


class Teller:
    """Shows progress and remembers the last of it.

    Args:
        show: what to do with each.
        doing: the verb.
    """

    def __init__(
        self, show: Callable[[ProgressLike, float], None], doing: str = "calibrating"
    ) -> None:
        self._show = show
        self._doing = doing
        self._start = time.monotonic()
        self.last = ""
        """The last progress in words."""

    def __call__(self, progress: ProgressLike) -> None:
        """Show and remember it."""
        seconds = time.monotonic() - self._start
        self.last = progress_text(progress, seconds, self._doing)
        self._show(progress, seconds)


@contextmanager
def shown(doing: str = "calibrating") -> Iterator[Teller]:
    """A bar on a terminal, else a line now and then."""
    if sys.stderr is None:
        yield Teller(lambda _progress, _seconds: None, doing)
        return
    if not sys.stderr.isatty():
        yield Teller(_Lines(doing), doing)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting the worker", total=None)

        def show(progress: ProgressLike, _seconds: float) -> None:
            words = plain(progress.part)
            bar.update(task, completed=progress.done, total=progress.total, description=words)

        yield Teller(show, doing)


class _Lines:
    """One line at the first call, then at most one every few seconds."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._last: float | None = None

    def __call__(self, progress: ProgressLike, seconds: float) -> None:
        if self._last is None or seconds - self._last >= LINE_EVERY_S:
            self._last = seconds
            typer.echo(progress_text(progress, seconds, self._doing), err=True)
