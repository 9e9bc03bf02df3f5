"""Documents that are the same bytes for the same content: keys sorted, every number finite.

What a document says decides its bytes, so that two of them can be compared and hashed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, TypeVar

import msgspec

from kernel_compass.codec.json_reading import read_json
from kernel_compass.errors import StudyError, shortened

_T = TypeVar("_T")
_DIGITS = 9
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""A document of a version as one of the next."""


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """What all parts of a document have in common: a misspelt key is an error, never ignored."""


class _Heading(msgspec.Struct):
    schema: str


def plain(record: Any) -> Any:
    """A record as dicts, lists, words and numbers.

    Raises:
        ValueError: a number that is not finite, or something that JSON cannot say.
    """
    try:
        found = msgspec.to_builtins(record, enc_hook=_mapping)
    except (TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from None
    _check(found, "$")
    return found


def reshaped(found: Any, kind: type[_T]) -> _T:
    """Plain values as a record or a document.

    Raises:
        ValueError: they are none.
    """
    try:
        made = msgspec.convert(found, kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    _complete(made)
    return made


def _complete(made: Any) -> None:
    """Give records the fields that were left out as values of their own.

    msgspec leaves a default to the class where no value was given, and writes what an instance
    holds: the same record would be other bytes, depending on where it came from.
    """
    if is_dataclass(made) and hasattr(made, "__dict__"):
        held = vars(made)
        for field in fields(made):
            if field.name not in held:
                object.__setattr__(made, field.name, getattr(made, field.name))
            else:
                _complete(held[field.name])
    elif isinstance(made, Mapping):
        for one in made.values():
            _complete(one)
    elif isinstance(made, list | tuple):
        for one in made:
            _complete(one)


def part(record: Any, document: type[Any], read: Callable[[Any], Any] | None = None) -> Any:
    """A record in plain values, by the form that documents give it.

    Args:
        record: what is written.
        document: the form.
        read: what reads such a part again; it says what contradicts itself.

    Raises:
        ValueError: it is not of that form, or `read` refuses it.
    """
    found = plain(reshaped(plain(record), document))
    if read is not None:
        read(found)
    return found


def record_in(found: Any, document: type[Any], kind: type[_T]) -> _T:
    """The record in such plain values.

    Raises:
        ValueError: there is none.
    """
    return reshaped(plain(reshaped(found, document)), kind)


def compact(found: Any) -> bytes:
    """Plain values on one line, keys sorted."""
    return msgspec.json.encode(found, order="sorted")


def indented(found: Any) -> bytes:
    """The same for readers, with a final newline."""
    return msgspec.json.format(compact(found), indent=2) + b"\n"


def versioned(
    data: bytes | str,
    name: str,
    version: int,
    kind: type[_T],
    label: str,
    upgrades: Mapping[int, Upgrade],
    remedy: str,
    again: str = "",
) -> _T:
    """The document of this or an older version that a text holds.

    Args:
        data: JSON.
        name: the schema's name.
        version: the newest that is known.
        kind: its shape in that version.
        label: what messages call it: its path, say.
        upgrades: from each older version to the next.
        remedy: what to do where it is no such document.
        again: what to do where it is one of an older version; default: the same.

    Raises:
        StudyError: it is none, or of a version that is not read.
    """
    oldest = version
    while oldest - 1 in upgrades:
        oldest -= 1
    known = f"{name}/{version}" if oldest == version else f"{name}/{oldest} to /{version}"
    has = version
    try:
        schema = read_json(data, _Heading).schema
        found = read_json(data, dict[str, Any], distinct_keys=True)
        has = _version_of(schema, name)
        if has > version:
            raise newer(label, schema, f"{name}/{version}")
        if has < oldest:
            raise older(label, schema, known, again or remedy)
        for step in range(has, version):
            found = upgrades[step](found)
        found["schema"] = f"{name}/{version}"
        _check(found, "$")
        return reshaped(found, kind)
    except ValueError as error:
        if has < version:
            said = f"{label} is not as its schema {name}/{has} has it (read are {known}): {error}."
            raise StudyError(said, again or remedy) from None
        raise StudyError(f"{label} is not a {name}/{version} document: {error}.", remedy) from None


def older(label: str, schema: str, known: str, remedy: str) -> StudyError:
    """The error for what an older version wrote, which is read no more."""
    found = f"{label} is of an older schema: {shortened(schema)!r}, and this kernel-compass reads "
    return StudyError(f"{found}{known}.", remedy)


def newer(label: str, schema: str, known: str) -> StudyError:
    """The error for what a newer version wrote."""
    found = f"{label} was written by a newer kernel-compass: its schema is {shortened(schema)!r}, "
    found += f"and this one reads up to {known!r}."
    return StudyError(found, "Upgrade kernel-compass; the file was left as it is.")


def _version_of(schema: str, name: str) -> int:
    head, _, version = schema.rpartition("/")
    if head != name or re.fullmatch(r"0|[1-9][0-9]*", version) is None:
        raise ValueError(f"its schema is {shortened(schema)!r}")
    return int(version) if len(version) <= _DIGITS else 10**_DIGITS


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _check(found: Any, place: str) -> None:
    """No number that another reader of JSON would refuse."""
    if isinstance(found, float) and not isfinite(found):
        raise ValueError(f"{place} is {found}")
    if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
        raise ValueError(f"{place} is too large a number")
    if isinstance(found, str):
        _check_text(found, place)
    if isinstance(found, dict):
        for key, value in found.items():
            _check_text(key, place)
            _check(value, f"{place}.{key}")
    elif isinstance(found, list | tuple):
        for index, value in enumerate(found):
            _check(value, f"{place}[{index}]")


def _check_text(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{place} holds half a character") from None
