"""A program run with what a dispatch table holds, its files as they are.

`kernel-compass run` replaces itself by this. Nothing is put on before the program imports torch, so
that what it sets up before stays as it meant it; the machine is looked at when a change would be
used first.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kernel_compass.api.actions.finding import named_by
from kernel_compass.api.actions.marking import AfterImport, MarkingFinder, marked_code
from kernel_compass.errors import KernelCompassError
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.profiling.step_running import main_module
from kernel_compass.records.step_action import StepActionKind

if TYPE_CHECKING:
    from kernel_compass.api.applying import Applied


class ProgramRun:
    """One run of a program.

    Args:
        table: of changes.
        free_originals: whether packed weights' originals may lie in host memory.
        kinds: of actions; empty = all.
    """

    def __init__(self, table: Path, free_originals: bool, kinds: Sequence[str]) -> None:
        self._table, self._free, self._kinds = table, free_originals, tuple(kinds)
        held = read_table(table)
        steps = [one for one in held.steps if not kinds or one.action.kind in kinds]
        products = held.entries if not kinds or StepActionKind.PRODUCT in kinds else ()
        self._has_any = bool(steps or products)
        found = [named_by(one.action.target) for one in steps]
        self._named = [one for one in dict.fromkeys(found) if one is not None]
        self.applied: Applied | None = None
        self._folder: Path | None = None

    def script(self, path: str, arguments: Sequence[str]) -> None:
        """Run a file as `python FILE` does."""
        self._folder = Path(path).resolve().parent
        self._install()
        sys.argv = [path, *arguments]
        try:
            if Path(path).is_dir() or Path(path).suffix == ".pyc":
                runpy.run_path(path, run_name="__main__")
                return
            sys.path[0] = str(self._folder)
            main = main_module(path)
            source = Path(path).read_bytes()
            code = marked_code(source, path, [one for one in self._named if one.is_file(path)])
            exec(code, vars(main))
        finally:
            self._take_off()

    def module(self, name: str, arguments: Sequence[str]) -> None:
        """Run a module as `python -m NAME` does."""
        self._folder = Path.cwd()
        self._install()
        sys.argv = [name, *arguments]
        try:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        finally:
            self._take_off()

    def _install(self) -> None:
        self._finder = MarkingFinder(self._named)
        sys.meta_path.insert(0, self._finder)
        if "torch" in sys.modules:
            self._put_on()
        else:
            sys.meta_path.insert(0, AfterImport("torch", self._put_on))

    def _put_on(self) -> None:
        from kernel_compass.api.applying import applied

        self.applied = applied(
            self._table,
            free_originals=self._free,
            kinds=self._kinds or None,
            folder=self._folder,
            defer=True,
        ).start()

    def _take_off(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        if self.applied is not None:
            self.explained = self.applied.explain()
            self.without = self._nothing_on(self.applied)
            self.applied.stop()

    def _nothing_on(self, applied: Applied) -> str | None:
        """Where nothing is on: what is not, and why; a line."""
        rows = applied.applications
        if applied.products or any(one.on for one in rows):
            return None
        if not self._has_any:
            return "it holds no change of the kinds that were named"
        if rows:
            why = rows[0].objection or "the program never defined what it changes"
            first, more = f"{rows[0].action.text}: {why}", len(rows) - 1
        else:
            lines = [one for one in self.explained if ": " in one]
            first = next(iter(lines), "the program called no product that it has an entry for")
            more = max(len(lines) - 1, 0)
        return f"{first}{f'; and {more} more' if more else ''}"

    explained: tuple[str, ...] = ()
    """What was on when it ended."""
    without: str | None = "the program never imported torch"
    """Why nothing was on when it ended; `None` = something was."""


def main(words: Sequence[str] | None = None) -> int:
    """Run a program; what follows it is its own."""
    parser = argparse.ArgumentParser(prog="kernel-compass run", add_help=False)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--free-originals", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--module", action="store_true")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    try:
        run = ProgramRun(given.table, given.free_originals, given.kind)
    except KernelCompassError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 11
    own = os.getpid()
    try:
        (run.module if given.module else run.script)(given.program, given.arguments)
    except Exception as error:
        error.__traceback__ = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        if given.explain:
            said = run.explained or ("the program never imported torch: nothing was put on",)
            print("\n".join(f"kernel-compass: {one}" for one in said), file=sys.stderr)  # noqa: T201
        elif run.without is not None and os.getpid() == own:
            told = f"nothing of {given.table.name} was on: {run.without} (--explain says all)"
            print(f"kernel-compass: {told}", file=sys.stderr)  # noqa: T201
    return 0


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the program's own first frame on."""
    own = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    code = main()
    if code:
        sys.exit(code)
