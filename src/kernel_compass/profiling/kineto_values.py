"""Values of a Kineto trace: times in every spelling, ids, operators' inputs."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from kernel_compass.profiling.kineto_structs import OpArgs, Word
from kernel_compass.records.trace import OpCall

_ZEROS = (b"000", b"00", b"0", b"")
_LAST_NUMBER = re.compile(r"-?\d+$")


def nanoseconds(raw: Raw) -> int | None:
    """A time as written, microseconds as number or text, in whole nanoseconds.

    Times since 1970 need 61 bits; a float would round them to a quarter of a microsecond.

    Returns:
        `None` where it is missing, null, not finite or no number.
    """
    text = bytes(raw)
    whole, _, fraction = text.partition(b".")
    try:
        if len(fraction) <= 3:  # as torch writes them: by far the most
            return int(whole + fraction + _ZEROS[len(fraction)])
    except ValueError:
        pass
    try:
        value = Decimal(text.decode("ascii", "replace").strip('" '))
        return round(value * 1000) if value.is_finite() else None
    except InvalidOperation:
        return None


def integer(word: Word) -> int | None:
    """An id as a whole number, whichever way it is written."""
    if isinstance(word, int):
        return word
    if isinstance(word, float):
        return int(word) if word.is_integer() else None
    if isinstance(word, str):
        found = _LAST_NUMBER.search(word.strip())
        return int(found[0]) if found else None
    return None


def number(word: Word) -> float | None:
    """A metric's value; `None` for words such as `inf`."""
    if isinstance(word, str):
        try:
            word = float(word)
        except ValueError:
            return None
    return None if word is None or not math.isfinite(word) else float(word)


@lru_cache(maxsize=1 << 16)
def process_label(pid: Word) -> str:
    """What a tool that joined traces wrote before the number: `[TP01] 0` gives `[TP01]`."""
    if not isinstance(pid, str):
        return ""
    text = pid.strip()
    found = _LAST_NUMBER.search(text)
    return text[: found.start()].strip() if found else text


class Operators:
    """Operators by what was recorded of them; equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes, bytes, bytes, bytes], OpCall] = {}

    def of(self, name: str, args: OpArgs) -> OpCall:
        """The operator of an event."""
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
    if isinstance(item, list) and all(isinstance(size, int) for size in item):
        return tuple(item)
    return None
