"""What a user's file imports from its own folder: it is run with it, and agreed to with it.

Imports are read, not run: `import` statements, and `import_module("name")` with a name in it. Files
that are found in another way, or opened as data, are not seen.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

_BY_NAME = ("import_module", "__import__")
_NATIVE = ("*.so", "*.pyd")


def local_imports(path: Path, contents: bytes | None = None) -> tuple[Path, ...]:
    """Files of its own folder, and below, that a file imports, and those that they import.

    Args:
        path: the file.
        contents: of it, where they were read before.

    Returns:
        In the order of their names; one that cannot be parsed imports nothing.
    """
    root, found = path.parent, set[Path]()
    waiting = [(path, path.read_bytes() if contents is None else contents)]
    while waiting:
        file, text = waiting.pop()
        for one in _imported(root, file, text):
            if one not in found and one != path:
                found.add(one)
                waiting.append((one, one.read_bytes() if one.suffix == ".py" else b""))
    return tuple(sorted(found))


def digest_of(path: Path, contents: bytes | None = None) -> str:
    """SHA-256 of a file; where it imports others of its folder, of all of them together.

    Args:
        path: the file.
        contents: of it, where they were read before.

    Raises:
        OSError: one of them cannot be read.
    """
    own = path.read_bytes() if contents is None else contents
    others = local_imports(path, own)
    digest = hashlib.sha256(own)
    if not others:
        return digest.hexdigest()
    whole = hashlib.sha256(digest.digest())
    for one in others:
        whole.update(one.relative_to(path.parent).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(one.read_bytes()).digest())
    return whole.hexdigest()


def _imported(root: Path, file: Path, text: bytes) -> Iterator[Path]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield from _files(root, one.name)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(root, file, node)
        elif isinstance(node, ast.Call) and (name := _named(node)) is not None:
            yield from _files(root, name)


def _from(root: Path, file: Path, node: ast.ImportFrom) -> Iterator[Path]:
    place = root
    if node.level:
        place = file.parent
        for _ in range(node.level - 1):
            place = place.parent
        if not place.is_relative_to(root):
            return
        yield from _initial(root, place)
    prefix = f"{node.module}." if node.module else ""
    if node.module:
        yield from _files(place, node.module)
    for one in node.names:
        if one.name == "*":
            continue
        yield from _files(place, prefix + one.name)


def _initial(root: Path, place: Path) -> Iterator[Path]:
    """Of the packages around a module: Python runs them first."""
    while place != root:
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"
        place = place.parent


def _named(node: ast.Call) -> str | None:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    first = node.args[0] if node.args else None
    is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return first.value.lstrip(".") if name in _BY_NAME and is_text else None  # type: ignore[union-attr]


def _files(place: Path, name: str) -> Iterator[Path]:
    """Files that Python runs to import a name, as far as they lie below a folder."""
    parts = name.split(".")
    for depth, part in enumerate(parts, 1):
        if not part.isidentifier():
            return
        base = place.joinpath(*parts[:depth])
        yield from (one for one in (base / "__init__.py", base.with_suffix(".py")) if one.is_file())
        for pattern in _NATIVE:
            yield from base.parent.glob(f"{part}{pattern[1:]}")
            yield from base.parent.glob(f"{part}.*{pattern[1:]}")
