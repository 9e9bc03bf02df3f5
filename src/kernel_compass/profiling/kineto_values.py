"""Values of a Kineto trace: times in every spelling, ids, operators' inputs."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from kernel_compass.profiling.kineto_structs import OpArgs, Word
from kernel_compass.records.trace import OpCall

_ZEROS = (b"000", b"00", b"0", b"")
_LIMIT = 1 << 63
"""Times in nanoseconds, ids and sizes are signed 64-bit in everything that writes traces."""
_LONGEST = 64
"""Characters of a number; what is longer is none that a profiler wrote."""


def nanoseconds(raw: Raw) -> int | None:
    """A time as written, microseconds as number or text, in whole nanoseconds.

    Times since 1970 need 61 bits; a float would round them to a quarter of a microsecond.

    Returns:
        `None` where it is missing, null, no number, or needs more than 64 bits.
    """
    text = bytes(raw)
    if not 0 < len(text) <= _LONGEST:
        return None
    whole, _, fraction = text.partition(b".")
    try:
        if len(fraction) <= 3:  # as torch writes them: by far the most
            time = int(whole + fraction + _ZEROS[len(fraction)])
            return time if -_LIMIT <= time < _LIMIT else None
    except ValueError:
        pass
    try:
        value = Decimal(text.decode("ascii", "replace").strip('" '))
        return round(value * 1000) if abs(value) < _LIMIT // 1000 else None
    except ArithmeticError:  # no number, nan, or an exponent that Decimal has no room for
        return None


def integer(word: Word) -> int | None:
    """An id or a size as a whole number, whichever way it is written; `None` over 64 bits."""
    if type(word) is int:  # nearly all
        return word if -_LIMIT <= word < _LIMIT else None
    if isinstance(word, str):
        word = _split_number(word)[1]
        word = int(word) if 0 < len(word) <= _LONGEST else None
    if word is None or not -_LIMIT <= word < _LIMIT:  # nan too
        return None
    return int(word) if word == int(word) else None


def number(word: Word) -> float | None:
    """A metric's value; `None` for words such as `inf`, and over 64 bits."""
    if isinstance(word, str):
        try:
            word = float(word)
        except ValueError:
            return None
    return None if word is None or not -_LIMIT <= word < _LIMIT else float(word)


def _split_number(text: str) -> tuple[str, str]:
    """`stream -7` -> `stream `, `-7`; no number is empty."""
    text = text.strip()
    head = text.rstrip("0123456789")
    if head.endswith("-") and head != text:
        head = head[:-1]
    return head, text[len(head) :]


@lru_cache(maxsize=1 << 16)
def process_label(pid: Word) -> str:
    """What a tool that joined traces wrote before the number: `[TP01] 0` gives `[TP01]`."""
    if not isinstance(pid, str):
        return ""
    return _split_number(pid)[0].strip()


class Operators:
    """Operators by what was recorded of them; equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes, bytes, bytes, bytes], OpCall] = {}

    def of(self, name: str, args: OpArgs) -> OpCall:
        """The operator of an event.

        Raises:
            RecursionError: its inputs are nested too deeply to be read.
        """
        parts = (bytes(args.dims), bytes(args.types), bytes(args.strides), bytes(args.concrete))
        key = (name, *parts)
        op = self._known.get(key)
        if op is None:
            dims, types, strides, concrete = map(_items, parts)
            op = OpCall(
                name=name,
                dims=tuple(map(_sizes, dims)),
                types=tuple(map(str, types)),
                strides=tuple(map(_sizes, strides)),
                concrete=tuple(map(str, concrete)),
            )
            self._known[key] = op
        return op


def _items(raw: bytes) -> list[Any]:
    """A list as written; empty where there is none, or none that can be read."""
    try:
        value = msgspec.json.decode(raw) if raw else []
        # Some writers put the list into a string.
        value = msgspec.json.decode(value) if isinstance(value, str) and value else value
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []


def _sizes(item: object) -> tuple[int, ...] | None:
    """Sizes or strides of one tensor; `None` for what is none, negative or over 64 bits."""
    if isinstance(item, list) and all(type(size) is int and 0 <= size < _LIMIT for size in item):
        return tuple(item)
    return None
