"""Running text in the terminal: indented, wrapped by cells, never too wide to read."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions
from rich.text import Text

MAX_WIDTH = 140
"""Longest line of running text, however wide the terminal."""


class Paragraph:
    """Wrapped text.

    Args:
        text: the words.
        indent: columns left free before the first line.
        hang: columns left free in addition before the others.
    """

    def __init__(self, text: Text, indent: int, hang: int) -> None:
        self._text = text
        self._indent = indent
        self._hang = hang

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, as rich asks for them."""
        room = max(min(options.max_width, MAX_WIDTH) - self._indent - self._hang, 16)
        first = self._text.wrap(console, room + self._hang, overflow="fold")[:1]
        if not first:
            return
        yield Text(" " * self._indent) + first[0]
        rest = self._text[len(first[0].plain.rstrip()) :]
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        for line in rest.wrap(console, room, overflow="fold") if rest.plain else ():
            yield Text(" " * (self._indent + self._hang)) + line
