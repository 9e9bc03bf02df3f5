"""This package's own ranges in a trace: which of them is around a launching call."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from kernel_compass.profiling.kineto_collect import CallRow, MarkRow
from kernel_compass.profiling.kineto_structs import Word


def marks_around(marks: Sequence[MarkRow], calls: Mapping[int, CallRow]) -> dict[int, str]:
    """The innermost range of its own thread around each call, by the call's number.

    Where its thread has none (autograd's), it is the range of any thread that was open longest
    ago: that of the step.
    """
    if not marks:
        return {}
    threads: dict[Word, list[MarkRow]] = {}
    for mark in marks:
        threads.setdefault(mark.thread, []).append(mark)
    open_at = {thread: _Nested(rows) for thread, rows in threads.items()}
    everywhere = _Nested(_outermost(marks))
    found: dict[int, str] = {}
    for number, call in calls.items():
        own = open_at.get(call.thread)
        name = (own.at(call.start) if own else None) or everywhere.at(call.start)
        if name is not None:
            found[number] = name
    return found


def _outermost(marks: Sequence[MarkRow]) -> list[MarkRow]:
    """Ranges that lie in no other; those of several threads in order of their start."""
    found: list[MarkRow] = []
    end = None
    for mark in sorted(marks, key=lambda one: (one.start, -one.duration)):
        if end is None or mark.start >= end:
            found.append(mark)
            end = mark.start + mark.duration
    return found


class _Nested:
    """Ranges that are properly nested: which is the innermost at a time."""

    def __init__(self, marks: Sequence[MarkRow]) -> None:
        self._times: list[int] = []
        self._names: list[str | None] = []
        stack: list[tuple[int, str]] = []

        def say(time: int) -> None:
            self._times.append(time)
            self._names.append(stack[-1][1] if stack else None)

        for mark in sorted(marks, key=lambda one: (one.start, -one.duration)):
            while stack and stack[-1][0] <= mark.start:
                time, _ = stack.pop()
                say(time)
            stack.append((mark.start + mark.duration, mark.name))
            say(mark.start)
        while stack:
            time, _ = stack.pop()
            say(time)

    def at(self, time: int) -> str | None:
        """The name of the innermost range that is open then."""
        place = bisect_right(self._times, time)
        return self._names[place - 1] if place else None
