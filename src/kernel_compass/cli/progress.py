"""Progress of a profiling run, on standard error only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, cast

import typer

from kernel_compass.report.phrases import count_text, plain

LINE_EVERY_S = 5.0
"""Without a terminal, at most one line in this many seconds."""


class ProgressLike(Protocol):
    """What the profiler tells while it works."""

    regime: str
    kernels_done: int | None
    """`None` where only the time is known."""
    kernel_name: str | None
    seconds: float


def progress_text(progress: ProgressLike) -> str:
    """`profiling warm: 12 kernels in 31 s, k_tiny`."""
    if progress.kernels_done is None:
        return f"recording a timeline: {progress.seconds:.0f} s"
    done = f"profiling {progress.regime}: {count_text(progress.kernels_done, 'kernel')}"
    name = f", {plain(progress.kernel_name)[:60]}" if progress.kernel_name else ""
    return f"{done} in {progress.seconds:.0f} s{name}"


@contextmanager
def shown() -> Iterator[Callable[[object], None]]:
    """A function that shows progress: a live line on a terminal, else a line now and then."""
    if sys.stderr is None:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status("starting") as status:
        yield lambda progress: status.update(Text(progress_text(cast(ProgressLike, progress))))


class _Lines:
    """One line at the first call, then at most one every few seconds."""

    def __init__(self) -> None:
        self._last: float | None = None

    def __call__(self, progress: object) -> None:
        now = time.monotonic()
        if self._last is None or now - self._last >= LINE_EVERY_S:
            self._last = now
            typer.echo(progress_text(cast(ProgressLike, progress)), err=True)
