"""The files that an implementation of this package is made of, by their hashes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import kernel_compass
from kernel_compass.records.contracts import Implementation

_ROOT = Path(kernel_compass.__file__).parent
_KERNELS = "kernel_compass.kernels"


def source_hashes(implementation: Implementation) -> dict[str, str]:
    """SHA-256 of the files under `kernel_compass/kernels` that an implementation rests on.

    The module that defines it, the quantizer, and all that they import there, at the top or inside
    a function; nothing is imported for it. Empty for an implementation from elsewhere.
    """
    module = type(implementation).__module__
    if not module.startswith(_KERNELS):
        return {}
    found: set[str] = set()
    waiting = {module, f"{_KERNELS}.quantize"}
    while waiting:
        one = waiting.pop()
        found.add(one)
        waiting |= _imports(one) - found
    return {name: _sha256(name) or "" for name in sorted(map(_file_name, found))}


def changed_file(files: Mapping[str, str]) -> str | None:
    """The first of these files that is not there or not as it was; `None` = all are."""
    return next((name for name, digest in files.items() if _sha256(name) != digest), None)


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of the kernels' package that a module names in an import, or in a text."""
    tree = ast.parse((_ROOT.parent / _file_name(module)).read_bytes())
    named: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # `import_module("kernel_compass.kernels.x")`, and tables of such names
            named |= {node.value, f"{_KERNELS}.{node.value}"}
    return frozenset(one for one in named if one.startswith(_KERNELS + ".") and _is_module(one))


def _is_module(name: str) -> bool:
    parts = name.split(".")
    return (
        all(part.isidentifier() for part in parts) and (_ROOT.parent / _file_name(name)).is_file()
    )


def _file_name(module: str) -> str:
    return module.replace(".", "/") + ".py"


@cache
def _sha256(name: str) -> str | None:
    path = (_ROOT.parent / name).resolve()
    if not path.is_relative_to(_ROOT):
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
