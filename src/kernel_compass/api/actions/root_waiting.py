"""The step's module where only the running program knows it: the first that it calls by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_compass.api.actions.context import Application, Context, Undo
from kernel_compass.api.actions.patching import Layer
from kernel_compass.kernels.library import torch_library


class RootWaiting:
    """Waits for a module that has all the names that targets ask for.

    Args:
        context: gets its roots.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: list[tuple[Application, str, Callable[[], Undo]]] = []
        self._undo: list[Undo] = []
        self._layer: Layer | None = None

    def add(self, application: Application, name: str, put_on: Callable[[], Undo]) -> None:
        """Put an action on as soon as the module is called."""
        self._waiting.append((application, name, put_on))
        if self._layer is None:
            self._layer = Layer(torch_library().nn.Module, "__call__", self._replaced)

    def close(self) -> None:
        """Wait no more; what was put on is taken off."""
        self._waiting.clear()
        while self._undo:
            self._undo.pop()()
        if self._layer is not None:
            self._layer.remove()
            self._layer = None

    def _replaced(self, below: Callable[..., Any], layer: Layer) -> Callable[..., Any]:
        is_compiling = torch_library().compiler.is_compiling

        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and layer.alive and self._waiting:
                self._look(module)
            return below(module, *args, **kwargs)

        return called

    def _look(self, module: Any) -> None:
        inner = getattr(module, "_orig_mod", module)  # under torch.compile
        known = dict(inner.named_modules())
        if any(name not in known for _, name, _ in self._waiting):
            return
        self._context.roots = {**known, "": module}
        waiting, self._waiting = self._waiting, []
        for application, _, put_on in waiting:
            try:
                self._undo.append(put_on())
            except Exception as error:  # the program goes on without it
                application.refuse(f"{type(error).__name__}: {error}")
        if self._layer is not None:
            self._layer.remove()
            self._layer = None
