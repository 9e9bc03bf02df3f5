"""Running text in the terminal: indented, wrapped by cells, never too wide to read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions
from rich.text import Text

MAX_WIDTH = 140
"""Longest line of running text, however wide the terminal."""


_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mnu]?s|[KMGT]?i?B|TB/s|GB/s)(?!\w))|(?<=[<=]) (?=\d)")
_GLUE = "\ue000"
"""Stands for a blank that no line may be broken at, while lines are broken."""


class Paragraph:
    """Wrapped text.

    Args:
        text: the words.
        indent: columns left free before the first line.
        hang: columns left free in addition before the others.
    """

    def __init__(self, text: Text, indent: int, hang: int) -> None:
        self._text = text.copy()
        self._text.plain = _BEFORE_UNIT.sub(_GLUE, text.plain)
        self._indent = indent
        self._hang = hang

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, as rich asks for them."""
        room = max(min(options.max_width, MAX_WIDTH) - self._indent - self._hang, 16)
        for i, line in enumerate(self._lines(console, room)):
            line.plain = line.plain.replace(_GLUE, " ")
            line.rstrip()
            yield Text(" " * (self._indent + (self._hang if i else 0))) + line

    def _lines(self, console: Console, room: int) -> Iterator[Text]:
        """The first line, longer by what hangs, and the others."""
        first = self._text.wrap(console, room + self._hang, overflow="fold")[:1]
        yield from first
        if first:
            rest = self._text[len(first[0].plain.rstrip()) :]
            rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
            yield from rest.wrap(console, room, overflow="fold") if rest.plain else ()
