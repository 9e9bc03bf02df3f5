"""JSON from anywhere into typed documents: whatever is wrong with it is a telling `ValueError`."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number that can be written again; longer ones overflow what computes with them."""

_BOM = "\ufeff"
_T = TypeVar("_T")
LARGEST_FILE = 16 << 20
"""Bytes; a hundred times what any of these documents takes."""


def read_json(data: bytes | str, type: type[_T], distinct_keys: bool = False) -> _T:
    """A JSON text as a value of a type; a byte order mark before it is skipped.

    Args:
        data: UTF-8 or text.
        type: what msgspec makes of it.
        distinct_keys: whether a key that an object has twice is refused: which of its values was
            meant, nobody knows.

    Raises:
        ValueError: it is no such JSON, or nested so deeply that it cannot be read.
    """
    try:
        if isinstance(data, str):
            data = data.encode()
        data = data.removeprefix(_BOM.encode())
        found = msgspec.json.decode(data, type=type)
        if distinct_keys:
            json.loads(data, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except OverflowError:
        raise ValueError("it holds a number that is too large") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    return found


def file_bytes(path: Path, regular: bool = True) -> bytes:
    """What is in a file of a document.

    Args:
        path: the file.
        regular: whether pipes and devices are refused: waiting for those may have no end.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, or no regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if regular else 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if regular and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ValueError("it is no regular file")
        data = file.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ValueError(f"it holds more than {LARGEST_FILE >> 20} MiB")
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"an object has the key {key!r} twice")
        seen.add(key)
