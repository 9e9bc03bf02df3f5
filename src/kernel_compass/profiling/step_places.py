"""In which module, and in which region, each thread of a step is while it is recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernel_compass.records.step_capture import RegionKind, SourceLine, StepRegion


class Places:
    """Modules that were entered, and regions, numbered as they were met.

    Args:
        modules: of the step, by qualified name.
    """

    def __init__(self, modules: Mapping[str, Any]) -> None:
        self._names = {id(module): name for name, module in modules.items()}
        self._held = modules  # so that no other module gets the id of one of these
        self._lock = threading.Lock()
        self._local = threading.local()
        self._regions: list[StepRegion] = []

    def begin(self) -> list[StepRegion]:
        """A call of the step begins; the list of its regions, which fills while it runs."""
        self._regions = []
        return self._regions

    @property
    def module(self) -> str | None:
        """The innermost one of this thread; its class where the step's modules lack it."""
        stack = self._stack
        if not stack:
            return None
        return self._names.get(id(stack[-1]), type(stack[-1]).__name__)

    @property
    def region(self) -> int | None:
        """The number of the region that this thread is in."""
        return getattr(self._local, "region", None)

    @property
    def in_compiled(self) -> bool:
        """Whether that is a compiled one."""
        at = self.region
        return at is not None and self._regions[at].kind is RegionKind.COMPILED

    @contextmanager
    def inside(self, module: Any) -> Iterator[None]:
        """While a module runs."""
        self._stack.append(module)
        try:
            yield
        finally:
            self._stack.pop()

    @contextmanager
    def in_region(self, kind: RegionKind, name: str, line: SourceLine | None) -> Iterator[int]:
        """While a region runs; its number."""
        before = self.region
        with self._lock:
            at = self._numbered(kind, name, line)
        self._local.region = at
        try:
            yield at
        finally:
            self._local.region = before

    @property
    def _stack(self) -> list[Any]:
        if not hasattr(self._local, "modules"):
            self._local.modules = []
        return self._local.modules  # type: ignore[no-any-return]

    def _numbered(self, kind: RegionKind, name: str, line: SourceLine | None) -> int:
        """The region's number; the same part called again is the same region."""
        regions = self._regions
        for at, one in enumerate(regions):
            if (one.kind, one.name, one.line) == (kind, name, line):
                regions[at] = StepRegion(at, kind, name, line, one.calls + 1)
                return at
        regions.append(StepRegion(len(regions), kind, name, line))
        return len(regions) - 1
