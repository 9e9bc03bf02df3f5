"""The outputs there are. A new one is one line here and one file of the same name beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Format(StrEnum):
    """An output; its value is the name of the module in this package that writes it."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"


@dataclass(frozen=True)
class Style:
    """What an output may use of the place it is shown in."""

    width: int = 100
    """Columns; only the terminal output looks at it."""
    color: bool = False
    """Whether ANSI colours may be used; only the terminal output looks at it."""
    as_list: bool = False
    """Whether JSON is an array even for one report: several were asked for."""
