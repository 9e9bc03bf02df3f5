"""Attributes replaced for a while, in layers: taken off in any order, nothing of ours stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_MISSING = object()
_LOCK = threading.RLock()
_LAYERS: dict[tuple[int, str], list[Layer]] = {}


class Layer:
    """One replacement of an attribute of an object.

    Args:
        owner: a module, a class or an object with attributes.
        name: of the attribute.
        replaced: from what is there (as it lies in the owner, unbound) to what stands in for it;
            the layer is handed in too, so that a stand-in that is left over can let calls through.
    """

    def __init__(self, owner: Any, name: str, replaced: Callable[[Any, Layer], Any]) -> None:
        self.alive = True
        self._owner, self._name = owner, name
        with _LOCK:
            self._before = vars(owner).get(name, _MISSING)
            self.below = getattr(owner, name) if self._before is _MISSING else self._before
            self._new = replaced(self.below, self)
            setattr(owner, name, self._new)
            _LAYERS.setdefault((id(owner), name), []).append(self)

    def remove(self) -> None:
        """Put back what was there; where a later layer lies on top, as soon as that is gone."""
        with _LOCK:
            self.alive = False
            key = (id(self._owner), self._name)
            stack = _LAYERS.get(key, [])
            while stack and not stack[-1].alive:
                stack.pop()._restore()
            if not stack:
                _LAYERS.pop(key, None)

    def _restore(self) -> None:
        if vars(self._owner).get(self._name, _MISSING) is not self._new:
            return  # the program replaced it meanwhile: its own stays, and ours lets through
        if self._before is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def layers_left() -> int:
    """How many replacements are in place in this process."""
    with _LOCK:
        return sum(map(len, _LAYERS.values()))
