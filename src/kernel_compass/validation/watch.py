"""What a candidate must leave alone: global state, clocks, the checks, threads and processes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.found import Found
from kernel_compass.validation.left_running import LeftRunning
from kernel_compass.validation.snapshots import (
    module_table,
    namespaces,
    of_object,
    replaced_modules,
)
from kernel_compass.validation.switches import Switches
from kernel_compass.validation.watched_pieces import WatchedPieces


class Watch:
    """A picture of this process, taken before a candidate's code is loaded.

    Args:
        torch: the module.
        carve_out: bytes of L2 set aside for persisting accesses, where that can be asked.
    """

    def __init__(self, torch: Any, carve_out: Callable[[], int | None] = lambda: None) -> None:
        _settle_pools(torch)
        self._pieces = WatchedPieces(torch)
        self._namespaces = list(namespaces(torch))
        self._modules = module_table()
        self._switches = Switches(torch, carve_out)
        self._left = LeftRunning()

    def also(self, **objects: Any) -> None:
        """Objects whose attributes have to stay, by the name that reports call them."""
        for name, one in objects.items():
            self._namespaces.extend(of_object(name, one))

    def patched(self) -> Found | None:
        """A clock, a tensor operation, a check or the reference that is another one now."""
        found = self._pieces.changed() or next(
            (name for one in self._namespaces if (name := one.changed())), None
        )
        found = found or replaced_modules(self._modules)
        if found is None:
            return None
        return Found(Reason.PATCHED, f"{found} is not what it was before the candidate ran.")

    def changed(self) -> Found | None:
        """Global state that is another one now; set back where that can be done."""
        found = self._switches.changed()
        return None if found is None else Found(Reason.CHANGES_STATE, found)

    def running(self, patience_s: float = 1.0) -> Found | None:
        """Threads or processes that were not there before and do not end.

        Those that a library's compiler started, and that run its own code, are not the
        candidate's: see `helped`.
        """
        return self._left.running(patience_s)

    def helped(self, call: Callable[[], object]) -> Found | None:
        """Threads and processes of a compiler's that work at every call, and not once: for it.

        Args:
            call: of the candidate; all it compiles is compiled.
        """
        return self._left.helped(call)


def _settle_pools(torch: Any) -> None:
    """Let the libraries' own threads start, and torch replace parts of itself as it does."""
    import_module("torch._dynamo")
    one = torch.ones(256, 256)
    _ = (one @ one).sum().item()
    _ = torch.ones(1 << 16).sum().item()
