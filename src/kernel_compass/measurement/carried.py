"""What a callable or a container carries along: the objects that can be reached from it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

CARRIED_DEPTH = 6
"""A module's parameter lies four attributes and dictionaries below a method of its parent."""
CARRIED_MOST = 20_000


def carried_objects(
    run: object, depth: int = CARRIED_DEPTH, without: object = None
) -> Iterator[Any]:
    """What a callable carries: closure, defaults, partial arguments, the object it is a method of,
    the globals it names, and what lies in their containers and attributes.

    Args:
        run: the callable.
        depth: containers within containers that are looked into.
        without: an object that is not looked into.
    """
    seen = {id(without)}
    level = [run]
    for _ in range(depth + 1):
        below: list[object] = []
        for item in level:
            if id(item) in seen or len(seen) > CARRIED_MOST:
                continue
            seen.add(id(item))
            yield item
            below += _inside(item)
        level = below


def _inside(item: object) -> list[object]:
    if isinstance(item, FunctionType):
        return _of_function(item)
    if isinstance(item, type | ModuleType | str | bytes):
        return []
    found: list[object] = list(vars(item).values()) if hasattr(item, "__dict__") else []
    if isinstance(item, Mapping):
        found += item.values()
    elif isinstance(item, list | tuple | set | frozenset):
        found += item
    elif isinstance(item, functools.partial):
        found += [item.func, *item.args, *item.keywords.values()]
    elif isinstance(item, MethodType):
        found += [item.__self__, item.__func__]
    return found


def _of_function(item: FunctionType) -> list[object]:
    cells = [cell.cell_contents for cell in item.__closure__ or () if _filled(cell)]
    named = (item.__globals__.get(name) for name in item.__code__.co_names)
    keywords = (item.__kwdefaults__ or {}).values()
    return [*cells, *(item.__defaults__ or ()), *keywords, *named]


def _filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not yet assigned
        return False
