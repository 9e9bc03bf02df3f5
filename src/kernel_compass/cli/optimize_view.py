"""What `optimize` shows while it runs: a live line on a terminal, lines without one, or JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Protocol

import typer

from kernel_compass.report.phrases import plain

LONGEST = 220
"""Characters of a line."""


class View(Protocol):
    """How events are shown; a context manager around the run."""

    def __enter__(self) -> View: ...

    def __exit__(self, *_: object) -> None: ...

    def tell(self, event: Any) -> None:
        """Show a `LoopEvent`."""

    def close_with(self, found: Any) -> None:
        """Show what it came to."""

    def say(self, text: str) -> None:
        """Show a line."""

    def agrees(self, count: int, table: Path) -> bool:
        """Whether the user wants so many entries in the table."""


def view_of(quiet: bool, json_lines: bool) -> View:
    """The view that is asked for, or fits the terminal."""
    if json_lines:
        return JsonLines()
    if quiet:
        return Quiet()
    return Live() if sys.stderr is not None and sys.stderr.isatty() else Lines()


class Quiet:
    """Nothing while it runs."""

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def tell(self, event: Any) -> None:
        """Nothing."""

    def close_with(self, found: Any) -> None:
        """Nothing: the ledger has it."""

    def say(self, text: str) -> None:
        """On standard error."""
        typer.echo(text, err=True)

    def agrees(self, count: int, table: Path) -> bool:
        """Nobody is asked."""
        del count, table
        return False


class JsonLines(Quiet):
    """Every event as a JSON object a line, on standard output."""

    def tell(self, event: Any) -> None:
        """One line."""
        from kernel_compass.codec.trial_document import encode_line

        trial = None if event.trial is None else json.loads(encode_line(event.trial))
        best = {
            name: {
                "trial": one.number,
                "outcome": one.outcome.value,
                "speedup": {r.regime.value: _ends(r.speedup) for r in one.results},
            }
            for name, one in event.best.items()
        }
        row = {
            "stage": event.stage.value,
            "text": event.text,
            "trial": trial,
            "done": event.done,
            "planned": event.planned,
            "best": best,
            "left_s": event.left_s,
        }
        typer.echo(json.dumps(row))


class Lines(Quiet):
    """Each event in a line on standard error, many of a kind in one; the summary on standard
    output."""

    def __init__(self) -> None:
        from kernel_compass.cli.optimize_gathering import Gathering

        self._gathering = Gathering(self._line)

    def __exit__(self, *_: object) -> None:
        self._gathering.flush()

    def tell(self, event: Any) -> None:
        """One line, or none yet."""
        if not self._gathering.take(event):
            self._line(event.stage.value, event.text)

    def _line(self, stage: str, text: str) -> None:
        typer.echo(f"{stage:<8} {plain(text)}"[:LONGEST], err=True)

    def close_with(self, found: Any) -> None:
        """The summary."""
        from kernel_compass.report.optimized import optimized_text
        from kernel_compass.report.step_study import step_study_text

        if found.recorded.step is not None:
            typer.echo(step_study_text(found.recorded), nl=False)
            return
        typer.echo(optimized_text(found.recorded, found.end), nl=False)

    def say(self, text: str) -> None:
        """A line."""
        typer.echo(text)

    def agrees(self, count: int, table: Path) -> bool:
        """Ask, where somebody can answer."""
        if sys.stdin is None or not sys.stdin.isatty():
            return False
        entries = "entry" if count == 1 else "entries"
        return typer.confirm(f"Put {count} accepted {entries} into {table}?")


class Live(Lines):
    """Lines that scroll, and under them one that stays: stage, trials, best, time left."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting")

    def __enter__(self) -> Live:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._status.stop()

    def tell(self, event: Any) -> None:
        """A line, and the one that stays."""
        from rich.text import Text

        super().tell(event)
        self._status.update(Text(status_text(event)))

    def _line(self, stage: str, text: str) -> None:
        from rich.text import Text

        del stage  # it is in the line that stays
        self._console.print(Text(plain(text)[:LONGEST]))


def status_text(event: Any) -> str:
    """`screen: 12 of 60 trials, best v_up 1.31x [1.28, 1.33] warm, 140 s left`."""
    parts = []
    if event.done:
        parts.append(f"{event.done}{f' of {event.planned}' if event.planned else ''} trials")
    for name, trial in list(event.best.items())[:2]:
        least = min(trial.results, key=lambda r: r.speedup.estimate, default=None)
        if least is not None:
            s = least.speedup
            parts.append(
                f"best of {name} {s.estimate:.2f}x [{s.low:.2f}, {s.high:.2f}] {least.regime.value}"
            )
    if event.left_s is not None:
        parts.append(f"{event.left_s:.0f} s left")
    return f"{event.stage.value}: {', '.join(parts)}" if parts else str(event.stage.value)


def _ends(speedup: Any) -> list[float]:
    return [speedup.low, speedup.estimate, speedup.high]
