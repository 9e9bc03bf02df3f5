"""kernel-compass: why a GPU kernel is slow, with the memory regime in every number."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def applied(path: Any, roots: Any = None, **options: Any) -> Any:
    """What a dispatch table holds, put on for a block; nothing of the program is edited.

        with kernel_compass.applied("compass.json"):
            model(x)

    Args:
        path: of the table.
        roots: the program's modules by name, or its one module.
        options: `free_originals`, `kinds` and more: of `kernel_compass.api.applying.applied`.
    """
    from importlib import import_module

    return import_module("kernel_compass.api.applying").applied(path, roots, **options)
